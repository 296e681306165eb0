"""Edges as they are read, chunk by chunk: from arrays, mapped or cached on the disk, from graphs, or generated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.convert.columns import check_room
from spsample.convert.compressed import require_file
from spsample.data.generators import PhiloxStream, check_rmat, rmat_piece
from spsample.store import Graph
from spsample.store.folder import file_error, system_errors
from spsample.store.npy import map_npy
from spsample.store.validation import MAX_NODES

_PIECE = 1 << 18


@dataclass
class EdgeChunk:
    """Consecutive edges: edge i leads from ``sources[i * step]`` to ``targets[i * step]``.

    `first` is the position of edge 0 in the input. `place(i, first line)` is the place of edge i in it, for messages;
    `lines` are the lines of a text that the chunk took. `problem(first line)` is what ended it early, if anything did.
    Loops that were `added` are not dropped.
    """

    sources: NDArray[Any]
    targets: NDArray[Any]
    count: int
    step: int = 1
    weights: NDArray[Any] | None = None
    first: int = 0
    lines: int = 0
    place: Callable[[int, int], str] | None = None
    problem: Callable[[int], Exception] | None = None
    first_line: int = 1
    added: bool = False

    @property
    def ends(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sources and targets, one for each edge."""
        stop = max((self.count - 1) * self.step + 1, 0)
        return self.sources[: stop : self.step], self.targets[: stop : self.step]

    def where(self, i: int) -> str:
        """Return the place of edge i in the input."""
        return f"edge {self.first + i}" if self.place is None else self.place(i, self.first_line)


class EdgeList(ABC):
    """Edges that can be read in chunks, with the facts known from their source.

    Attributes
    ----------
    name : str
        Names them in messages.
    num_nodes : int or None
        Number of vertices, or None where the ids decide.
    num_edges : int or None
        Number of edges, where it is known before they are read.
    weight_dtype : dtype or None
        float32 or float64, or None without weights.
    rereadable : bool
        True where reading twice costs no more than reading memory.
    ends : (str, str) or None
        The columns of sources and targets, of a table.
    unread : tuple of str
        Columns of a table, or attributes of PyG's data, of which nothing is made.
    notes : tuple of str
        Notes about the source for the user.
    """

    name: str
    num_nodes: int | None = None
    num_edges: int | None = None
    weight_dtype: np.dtype[Any] | None = None
    rereadable = False
    ends: tuple[str, str] | None = None
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @abstractmethod
    def tasks(self, count: int) -> Iterable[Callable[[], EdgeChunk]]:
        """Yield functions that make the chunks, of at most `count` edges, in order; several may run at once."""

    def check(self) -> None:  # noqa: B027  (most sources have no counts to compare with)
        """Compare what was read with the counts that the source states."""


def given_chunk(chunk: EdgeChunk) -> EdgeChunk:
    """Return a chunk that is there already, where a function that makes one is wanted."""
    return chunk


def array_chunks(
    sources: NDArray[Any], targets: NDArray[Any], weights: NDArray[Any] | None, step: int, count: int, before: int = 0
) -> Iterator[Callable[[], EdgeChunk]]:
    """Yield the chunks of edges that lie in arrays of int32 or int64, in memory or mapped, `before` others behind."""
    total = (len(sources) + step - 1) // step
    for first in range(0, total, count):
        size = min(count, total - first)
        places = slice(first * step, (first + size - 1) * step + 1)
        held = None if weights is None else weights[first : first + size]
        yield partial(EdgeChunk, sources[places], targets[places], size, step, held, before + first)


def check_chunk(name: str, chunk: EdgeChunk, limits: tuple[int, int], num_nodes: int | None) -> None:
    """Check ids, of which the smallest and largest are known, and weights.

    Raises
    ------
    DataError
        Naming the first bad edge by its place in the input.
    """
    most = MAX_NODES if num_nodes is None else num_nodes
    if limits[0] < 0 or limits[1] >= most:
        sources, targets = chunk.ends
        bad = (sources < 0) | (sources > most - 1) | (targets < 0) | (targets > most - 1)  # 2^63 is no int64
        at = int(np.argmax(bad))
        ids = f"{int(sources[at])} -> {int(targets[at])}"
        hint = "Give --num-nodes, or --renumber for ids that are not 0 to n - 1." if most < MAX_NODES else ""
        raise file_error(name, f"the edge {ids} at {chunk.where(at)}", f"vertex ids in [0, {most})", hint)
    if chunk.weights is not None and len(chunk.weights):
        with np.errstate(invalid="ignore"):
            good = (chunk.weights >= 0) & (chunk.weights < np.inf)
        if not good.all():
            at = int(np.argmin(good))
            raise file_error(name, f"weight {chunk.weights[at]} at {chunk.where(at)}", "finite weights of at least 0")


class ArrayEdges(EdgeList):
    """Edges in arrays of integers, in memory or mapped."""

    rereadable = True

    def __init__(
        self, name: str, sources: NDArray[Any], targets: NDArray[Any], step: int, weights: NDArray[Any] | None
    ) -> None:
        self.name, self.weight_dtype = name, None if weights is None else weights.dtype
        self._columns = sources, targets, weights
        self._step = step

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        sources, targets, weights = self._columns
        for task in array_chunks(sources, targets, weights, self._step, count):
            yield task if sources.dtype in (np.int32, np.int64) else partial(_widened, task)


def _widened(task: Callable[[], EdgeChunk]) -> EdgeChunk:
    """A chunk of another type of integers, as int64."""
    chunk = task()
    chunk.sources, chunk.targets = chunk.sources.astype(np.int64), chunk.targets.astype(np.int64)
    return chunk


def npy_edges(path: Path, weights: Path | None = None, shape: str = "auto") -> ArrayEdges:
    """Map an ``.npy`` file of integers, of the shape "2,E" (sources, then targets) or "E,2"; "auto" goes by the array.

    Raises
    ------
    DataError
        If it is none, or of shape (2, 2) where `shape` is "auto".
    """
    array = _load(path, (1, 2))
    fits = {"2,E": array.shape[0] == 2, "E,2": array.shape[1:] == (2,)} if array.ndim == 2 else {}
    chosen = [form for form, is_fit in fits.items() if is_fit and shape in ("auto", form)]
    if len(chosen) > 1:
        hint = (
            'Pass npy_shape="2,E" (a row of sources, then one of targets) or npy_shape="E,2" (a row for each '
            "edge); on the command line --npy-shape."
        )
        raise file_error(path, "shape (2, 2), which may be (2, E) or (E, 2)", "to be told which of them", hint)
    if not chosen:
        expected = {"auto": "(2, E) or (E, 2)", "2,E": "(2, E)", "E,2": "(E, 2)"}[shape]
        raise file_error(path, f"shape {array.shape}", f"shape {expected}", "Or two files: SRC.npy,DST.npy")
    rows = array if chosen == ["2,E"] else array.T
    held = _weights(weights, rows.shape[1])
    if rows[0].flags.c_contiguous and rows[1].flags.c_contiguous:
        return ArrayEdges(str(path), rows[0], rows[1], 1, held)
    flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
    return ArrayEdges(str(path), flat, flat[1:], 2, held)


def npy_pair(sources: Path, targets: Path, weights: Path | None = None) -> ArrayEdges:
    """Map two ``.npy`` files: sources and targets.

    Raises
    ------
    DataError
        If they are no vectors of integers of one length.
    """
    ends = _load(sources, (1,)), _load(targets, (1,))
    if len(ends[0]) != len(ends[1]):
        raise file_error(targets, f"{len(ends[1])} targets for {len(ends[0])} sources", "as many")
    if ends[0].dtype != ends[1].dtype:
        given = f"{ends[1].dtype} targets for {ends[0].dtype} sources"
        raise file_error(targets, given, "the same dtype in both files")
    return ArrayEdges(f"{sources},{targets}", ends[0], ends[1], 1, _weights(weights, len(ends[0])))


def load_map(path: Path) -> NDArray[Any]:
    """Map an ``.npy`` file.

    Raises
    ------
    DataError
        If it cannot be.
    """
    require_file(path)
    return np.asarray(map_npy(path, "an .npy file of numbers"))


def _load(path: Path, dimensions: tuple[int, ...]) -> NDArray[Any]:
    array = load_map(path)
    if array.dtype.kind not in "iu" or array.dtype == np.uint64 or array.ndim not in dimensions:
        given = f"dtype {array.dtype} and shape {array.shape}"
        wanted = " or ".join(str(d) for d in dimensions)
        raise file_error(path, given, f"integers of at most 63 bits in {wanted} dimension(s)")
    return array


def _weights(path: Path | None, count: int) -> NDArray[Any] | None:
    if path is None:
        return None
    weights = load_map(path)
    if weights.dtype not in (np.float32, np.float64) or weights.shape != (count,):
        given = f"dtype {weights.dtype} and shape {weights.shape}"
        raise file_error(path, given, f"{count} weights of float32 or float64")
    return weights


class GraphEdges(EdgeList):
    """The entries of a graph as edges; their positions are those in its arrays."""

    rereadable = True

    def __init__(self, name: str, graph: Graph) -> None:
        self.name = name
        self.num_nodes = graph.num_nodes
        self.weight_dtype = None if graph.data is None else graph.data.dtype
        self._graph = graph

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        for first in range(0, self._graph.num_edges, count):
            yield partial(self._chunk, first, min(first + count, self._graph.num_edges))

    def _chunk(self, first: int, last: int) -> EdgeChunk:
        graph = self._graph
        begin = int(np.searchsorted(graph.indptr, first, side="right")) - 1
        end = int(np.searchsorted(graph.indptr, last, side="left"))
        bounds = np.clip(graph.indptr[begin : end + 1], first, last)
        sources = graph.indices[first:last]
        targets = np.repeat(np.arange(begin, end, dtype=sources.dtype), np.diff(bounds))
        weights = None if graph.data is None else graph.data[first:last]
        return EdgeChunk(sources, targets, last - first, 1, weights, first)


class RmatEdges(EdgeList):
    """The pairs of an R-MAT graph, in the order of the generator, which makes any part of them by itself."""

    def __init__(self, scale: int, edge_factor: int, random_seed: int) -> None:
        check_rmat(scale, edge_factor)
        self.name = f"rmat:{scale},{edge_factor}"
        self.num_nodes, self.num_edges = 1 << scale, edge_factor << scale
        self._piece = partial(rmat_piece, scale, self.num_edges, stream=PhiloxStream(random_seed))

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        total = self.num_edges or 0
        for first in range(0, total, min(count, _PIECE)):
            yield partial(self._chunk, slice(first, min(first + min(count, _PIECE), total)))

    def _chunk(self, piece: slice) -> EdgeChunk:
        sources, targets = self._piece(piece=piece)
        return EdgeChunk(sources, targets, len(sources), first=piece.start)


@dataclass
class _CachedPart:
    """Chunks of one width of ids: a file of sources, one of targets, and perhaps one of weights."""

    files: list[Any]
    dtypes: list[np.dtype[Any]]
    count: int = 0


class CachedEdges(EdgeList):
    """Edges appended to files in a folder, int32 until an id needs more, and read again from maps of them."""

    rereadable = True

    def __init__(self, name: str, folder: Path, weight_dtype: np.dtype[Any] | None) -> None:
        self.name, self.weight_dtype, self._folder = name, weight_dtype, folder
        self._parts: list[_CachedPart] = []

    def add(self, chunk: EdgeChunk, largest: int) -> None:
        """Append a chunk, whose largest id is given."""
        if chunk.count == 0:
            return
        dtype = np.dtype(np.int32 if largest < 2**31 else np.int64)
        if not self._parts or self._parts[-1].dtypes[0].itemsize < dtype.itemsize:
            dtypes = [dtype, dtype] + ([] if self.weight_dtype is None else [self.weight_dtype])
            paths = [self._folder / f"cached-{len(self._parts)}.{i}" for i in range(len(dtypes))]
            self._parts.append(_CachedPart([path.open("wb") for path in paths], dtypes))
        part = self._parts[-1]
        part.count += chunk.count
        with system_errors(self._folder, "room on the disk for edges that are read"):
            for file, kind, column in zip(part.files, part.dtypes, (*chunk.ends, chunk.weights), strict=False):
                file.write(np.ascontiguousarray(column, dtype=kind).data.cast("B"))
                file.flush()

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        before = 0
        for part in self._parts:
            sources, targets, *weights = map(partial(np.memmap, mode="r"), [f.name for f in part.files], part.dtypes)
            yield from array_chunks(sources, targets, weights[0] if weights else None, 1, count, before)
            before += part.count

    def close(self) -> None:
        """Remove the files."""
        for file in (file for part in self._parts for file in part.files):
            file.close()
            Path(file.name).unlink(missing_ok=True)


class DistinctIds:
    """The distinct ids of chunks, ascending; `room` bytes may be taken."""

    def __init__(self, room: int) -> None:
        self._ids, self._room = np.empty(0, np.int64), room
        self._new: list[NDArray[np.int64]] = []

    def add(self, chunk: EdgeChunk) -> None:
        """Take note of the ids of a chunk."""
        self.add_ids(np.union1d(*map(np.unique, chunk.ends)).astype(np.int64))

    def add_ids(self, ids: NDArray[np.int64]) -> None:
        """Take note of ids."""
        self._new.append(ids)
        if sum(map(len, self._new)) >= len(self._ids):
            self.ids()

    def ids(self) -> NDArray[np.int64]:
        """Return them all; while they are merged they take 25 bytes each."""
        if not self._new:
            return self._ids
        check_room("renumber", 25 * (len(self._ids) + sum(map(len, self._new))), self._room)
        ids = np.concatenate([self._ids, *self._new])
        ids.sort()
        is_first = np.ones(len(ids), np.bool_)
        np.not_equal(ids[1:], ids[:-1], out=is_first[1:])
        self._ids, self._new = ids[is_first], []
        return self._ids


class RenumberedEdges(EdgeList):
    """Other edges, with an id's place in `ids` for the id."""

    rereadable = True

    def __init__(self, edges: EdgeList, ids: NDArray[np.int64]) -> None:
        self.name, self.weight_dtype = edges.name, edges.weight_dtype
        self.num_nodes = max(len(ids), 1)
        self._edges, self._ids = edges, ids

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        for task in self._edges.tasks(count):
            yield partial(self._renumbered, task)

    def _renumbered(self, task: Callable[[], EdgeChunk]) -> EdgeChunk:
        chunk = task()
        sources, targets = (np.searchsorted(self._ids, ids) for ids in chunk.ends)
        return EdgeChunk(sources, targets, chunk.count, 1, chunk.weights, chunk.first)
