"""Generated graphs of any size: chunk by chunk what `rmat` and `planted` make in memory, bit for bit.

Every random word has its place in the stream of the generator, so that any part can be made by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spsample.convert.edges import EdgeChunk, EdgeList
from spsample.data.generators import NUM_CLASSES, NUM_FEATURES, PhiloxStream, PlantedRows, check_rmat, rmat_piece
from spsample.data.labels import SPLIT_IDS
from spsample.store import StoreWriter

_PIECE = 1 << 18
_WORD_BITS, _DIGIT = 64, 16


class RmatEdges(EdgeList):
    """The pairs of an R-MAT graph, in the order of the generator."""

    def __init__(self, scale: int, edge_factor: int, random_seed: int) -> None:
        check_rmat(scale, edge_factor)
        self.name = f"rmat:{scale},{edge_factor}"
        self.num_nodes, self.num_edges = 1 << scale, edge_factor << scale
        self._scale, self._count, self._stream = scale, edge_factor << scale, PhiloxStream(random_seed)

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        for first in range(0, self._count, min(count, _PIECE)):
            yield partial(self._chunk, first, min(first + min(count, _PIECE), self._count))

    def _chunk(self, first: int, last: int) -> EdgeChunk:
        ends = rmat_piece(self._scale, self._count, slice(first, last), self._stream)
        return EdgeChunk(ends[0], ends[1], last - first, first=first)


def write_rmat(scale: int, edge_factor: int, random_seed: int, writer: StoreWriter) -> None:
    """Write features, labels and split of an R-MAT graph."""
    stream, n = PhiloxStream(random_seed), 1 << scale
    place = scale * (edge_factor << scale)
    x = writer.create("x", np.float32, (n, NUM_FEATURES)).reshape(-1)
    for first, last in _ranges(n * NUM_FEATURES):
        x[first:last] = (2 * stream.at(place + first).uniform(last - first) - 1).astype(np.float32)
    place += n * NUM_FEATURES
    y = writer.create("y", np.int64, n)
    for first, last in _ranges(n):
        y[first:last] = stream.at(place + first).below(NUM_CLASSES, last - first)
    _write_split(writer, stream, place + n, n)


class PlantedEdges(EdgeList):
    """The edges of a planted graph, row by row."""

    def __init__(self, rows: PlantedRows) -> None:
        self.name, self.num_nodes, self.num_edges = "planted", rows.num_nodes, rows.num_nodes * rows.degree
        self._rows = rows

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        size = max(1, min(count, _PIECE) // self._rows.degree)
        for first in range(0, self._rows.num_nodes, size):
            yield partial(self._chunk, first, min(first + size, self._rows.num_nodes))

    def _chunk(self, first: int, last: int) -> EdgeChunk:
        degree = self._rows.degree
        sources = self._rows.neighbours(first, last).ravel()
        targets = np.repeat(np.arange(first, last, dtype=np.int64), degree)
        return EdgeChunk(sources, targets, len(sources), first=first * degree)


def write_planted(rows: PlantedRows, writer: StoreWriter) -> None:
    """Write features, labels, split and Bayes rate of a planted graph."""
    n = rows.num_nodes
    x, y = writer.create("x", np.float32, (n, rows.num_classes)), writer.create("y", np.int64, n)
    paths = [writer.folder / name for name in ("colours", "rates", "test-rates")]
    try:
        colours = np.memmap(paths[0], np.int32, "w+", shape=(n,))
        rates = np.memmap(paths[1], np.float64, "w+", shape=(n,))
        for first, last in _ranges(n):
            colours[first:last] = rows.colours(first, last)
            x[first:last] = np.eye(rows.num_classes, dtype=np.float32)[colours[first:last]]
        size = max(1, _PIECE // (rows.degree * rows.num_classes))
        for first in range(0, n, size):
            last = min(first + size, n)
            y[first:last], rates[first:last] = rows.labels(first, last, colours[rows.neighbours(first, last)])
        test = _write_split(writer, rows.stream, rows.split_place, n)
        writer.set(bayes_rate=_mean(rates, test, paths[2]))
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def _mean(rates: NDArray[np.float64], ids: NDArray[np.int64], path: Path) -> float:
    """``rates[ids].mean()``, which is a matter of the order of the additions, by way of a file."""
    if len(ids) == 0:
        return float("nan")
    chosen = np.memmap(path, np.float64, "w+", shape=(len(ids),))
    for first, last in _ranges(len(ids)):
        chosen[first:last] = rates[ids[first:last]]
    return float(np.asarray(chosen).mean())


def _ranges(count: int) -> Iterator[tuple[int, int]]:
    for first in range(0, count, _PIECE):
        yield first, min(first + _PIECE, count)


def _write_split(writer: StoreWriter, stream: PhiloxStream, place: int, n: int) -> NDArray[np.int64]:
    """Write the index sets of `random_split` of the permutation whose words begin at `place`; return the last one."""
    bounds = [0, round(n * 0.6), round(n * 0.8), n]
    limits = [_rank(stream, place, n, rank) for rank in bounds]
    sizes = np.diff(bounds)
    arrays = [writer.create(name, np.int64, int(size)) for name, size in zip(SPLIT_IDS, sizes, strict=True)]
    filled, ties = [0, 0, 0], dict.fromkeys((word for word, _ in limits), 0)
    for first, last in _ranges(n):
        words = stream.at(place + first).words(last - first)
        below = [_below(words, limit, ties) for limit in limits]
        for word in ties:
            ties[word] += int((words == np.uint64(word)).sum()) if word < 2**_WORD_BITS else 0
        for i, array in enumerate(arrays):
            ids = np.flatnonzero(below[i + 1] & ~below[i]) + first
            array[filled[i] : filled[i] + len(ids)] = ids
            filled[i] += len(ids)
    return arrays[2]


def _below(words: NDArray[np.uint64], limit: tuple[int, int], ties: dict[int, int]) -> NDArray[np.bool_]:
    """Return whether words come before a limit: smaller ones do, and the first few that equal it."""
    word, count = limit
    if word == 2**_WORD_BITS:
        return np.ones(len(words), bool)
    equal = words == np.uint64(word)
    before: NDArray[np.bool_] = (words < np.uint64(word)) | (equal & (np.cumsum(equal) + ties[word] <= count))
    return before


def _rank(stream: PhiloxStream, place: int, n: int, rank: int) -> tuple[int, int]:
    """(word, ties): `rank` of the n words are smaller than `word` or among the first `ties` that equal it."""
    if rank == n:
        return 2**_WORD_BITS, 0
    prefix, left = 0, rank
    for shift in range(_WORD_BITS - _DIGIT, -1, -_DIGIT):
        counts = np.zeros(1 << _DIGIT, np.int64)
        for first, last in _ranges(n):
            words = stream.at(place + first).words(last - first)
            if shift + _DIGIT < _WORD_BITS:
                words = words[words >> np.uint64(shift + _DIGIT) == np.uint64(prefix)]
            digits = ((words >> np.uint64(shift)) & np.uint64((1 << _DIGIT) - 1)).astype(np.int64)
            counts += np.bincount(digits, minlength=1 << _DIGIT)
        ends = np.cumsum(counts)
        digit = int(np.searchsorted(ends, left, side="right"))
        left -= int(ends[digit - 1]) if digit else 0
        prefix = (prefix << _DIGIT) | digit
    return prefix, left
