"""Graphs and seeds of a measurement as folders of .npy files, which every peer's process reads for itself."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from spsample.data import Dataset
from spsample.data.philox import PhiloxStream
from spsample.data.rmat import rmat_pairs

_CHUNK = 1 << 22
"""Pairs drawn at once, as `spsample.data.rmat` draws them."""


def graph_folder(spec: str, cache: Path) -> Path:
    """The folder in `cache` that holds `indptr.npy` and `indices.npy` of a graph; made where it is missing."""
    folder = cache / spec.replace(":", "_").replace(",", "_").replace(os.sep, "_")
    if not folder.is_dir():
        indptr, indices = _arrays(spec)
        save(folder, indptr=indptr, indices=indices)
    return folder


def save(folder: Path, **arrays: NDArray[np.generic]) -> None:
    """Write the arrays as `NAME.npy` into a new folder, which appears only once it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
    for name, array in arrays.items():
        np.save(partial / f"{name}.npy", array)
    partial.rename(folder)


def draw_seeds(indptr: NDArray[np.int64], batches: int, batch_size: int) -> NDArray[np.int64]:
    """(batches, batch_size) seeds that all peers sample from: vertices with in-neighbours, distinct in each row.

    A third of the vertices of an R-MAT graph have none, and are nothing to sample.
    """
    rng = np.random.default_rng(1)
    vertices = np.flatnonzero(np.diff(indptr))
    size = min(batch_size, len(vertices))
    return np.stack([vertices[rng.choice(len(vertices), size, replace=False)] for _ in range(batches)])


def _arrays(spec: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    name, _, sizes = spec.partition(":")
    if name == "rmat" and sizes.count(",") == 1:
        return rmat_arrays(*map(int, sizes.split(",")))
    if name == "grid":
        return grid_arrays(int(sizes))
    graph = dataset_graph(spec)
    return graph.indptr, graph.indices


def dataset_graph(spec: str) -> sp.Graph:
    """The graph of a data set, or of an .npz file of that name among the real graphs (SPSAMPLE_DATA)."""
    return named_dataset(spec).graph


def named_dataset(spec: str) -> Dataset:
    """A data set, or an .npz file of that name among the real graphs."""
    folder = Path(os.environ.get("SPSAMPLE_DATA", "../shared/data"))
    files = (folder / f"{prefix}{spec}.npz" for prefix in ("", "topo_"))
    return sp.load_dataset(next((str(file) for file in files if file.is_file()), spec))


def rmat_arrays(scale: int, edge_factor: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """`indptr` and `indices` of `load_dataset("rmat:SCALE,EDGE_FACTOR")`, with no features and a third of the memory.

    At its peak one int64 for each direction of each pair, and the result.
    """
    n = 1 << scale
    keys = _sorted_keys(scale, edge_factor * n)
    indptr = np.searchsorted(keys, np.arange(n + 1, dtype=np.int64) << scale)
    indices = np.empty(len(keys), np.int32)
    for part in _slices(len(keys)):
        indices[part] = keys[part] & (n - 1)
    return indptr.astype(np.int64), indices


def grid_arrays(side: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """`indptr` and `indices` of a square of vertices, each beside its 8 neighbours, fewer at the rim."""
    at = np.arange(side * side, dtype=np.int64).reshape(side, side)
    targets, sources = [], []
    for down, right in ((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)):
        rows, columns = (slice(max(-step, 0), side - max(step, 0)) for step in (down, right))
        target = at[rows, columns].ravel()
        targets.append(target)
        sources.append(target + down * side + right)
    target, source = np.concatenate(targets), np.concatenate(sources)
    order = np.lexsort((source, target))
    indptr = np.searchsorted(target[order], np.arange(side * side + 1))
    return indptr.astype(np.int64), source[order].astype(np.int32)


def _sorted_keys(scale: int, pairs: int) -> NDArray[np.int64]:
    """target * n + source of both directions of all pairs, ascending and distinct, without self-loops."""
    stream = PhiloxStream(0)
    keys = np.empty(2 * pairs, np.int64)
    count = 0
    for part in _slices(pairs):
        a, b = rmat_pairs(scale, part.stop - part.start, stream)
        a, b = a[a != b], b[a != b]
        keys[count : count + len(a)] = (a << scale) | b
        keys[count + len(a) : count + 2 * len(a)] = (b << scale) | a
        count += 2 * len(a)
    keys = keys[:count]
    keys.sort()
    return keys[: _keep_distinct(keys)]


def _keep_distinct(ascending: NDArray[np.int64]) -> int:
    """Move the distinct values to the front, in place; how many there are."""
    count = 0
    for part in _slices(len(ascending)):
        values = ascending[part].copy()
        is_new = np.ones(len(values), np.bool_)
        is_new[1:] = values[1:] != values[:-1]
        is_new[0] = count == 0 or values[0] != ascending[count - 1]
        kept = values[is_new]
        ascending[count : count + len(kept)] = kept
        count += len(kept)
    return count


def _slices(length: int) -> list[slice]:
    return [slice(begin, min(begin + _CHUNK, length)) for begin in range(0, length, _CHUNK)]
