"""Edge lists as arrays: NumPy files and raw integers, mapped and read as they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.convert.chunks import EdgeChunk, array_chunks
from spsample.convert.compressed import require_file
from spsample.errors import DataError
from spsample.store.npy import map_npy

__all__ = ["ArrayEdges", "npy_edges", "npy_pair", "raw_edges"]


class ArrayEdges:
    """Edges in arrays of integers, in memory or mapped; see `EdgeList`."""

    rereadable = True

    def __init__(
        self,
        name: str,
        sources: NDArray[Any],
        targets: NDArray[Any],
        step: int = 1,
        weights: NDArray[Any] | None = None,
    ) -> None:
        self.name = name
        self.num_nodes: int | None = None
        self.weight_dtype = None if weights is None else weights.dtype
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


def raw_edges(path: Path, dtype: str, weights: Path | None = None) -> ArrayEdges:
    """Map a file of pairs (source, target) of little-endian integers.

    Raises
    ------
    DataError
        If its size is no number of pairs.
    """
    require_file(path)
    kind, size = np.dtype(dtype).newbyteorder("<"), path.stat().st_size
    if size % (2 * kind.itemsize):
        given = f"{size} bytes, no whole number of pairs of {kind.itemsize} bytes each"
        raise DataError(argument=str(path), given=given, expected=f"pairs of {dtype}, little-endian")
    flat = np.memmap(path, kind, "r") if size else np.empty(0, kind)
    return ArrayEdges(str(path), flat, flat[1:], 2, _weights(weights, len(flat) // 2))


def npy_edges(path: Path, weights: Path | None = None, shape: str = "auto") -> ArrayEdges:
    """Map an ``.npy`` file of integers, of the shape "2,E" (sources, then targets) or "E,2"; "auto" goes by the array.

    Raises
    ------
    DataError
        If it is none, or of shape (2, 2) where `shape` is "auto".
    """
    array = _load(path, (1, 2))
    rows = _as_rows(path, array, shape)
    edges = rows.shape[1]
    held = _weights(weights, edges)
    if rows[0].flags.c_contiguous and rows[1].flags.c_contiguous:
        return ArrayEdges(str(path), rows[0], rows[1], 1, held)
    flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
    return ArrayEdges(str(path), flat, flat[1:], 2, held)


def _as_rows(path: Path, array: NDArray[Any], shape: str) -> NDArray[Any]:
    """View the array as sources and targets, one row each."""
    if shape == "auto" and array.shape == (2, 2):
        raise DataError(
            argument=str(path),
            given="shape (2, 2), which may be (2, E) or (E, 2)",
            expected="to be told which of them",
            hint='Pass npy_shape="2,E" (a row of sources, then one of targets) or npy_shape="E,2" (a row for each '
            "edge); on the command line --npy-shape.",
        )
    expected = {"auto": "(2, E) or (E, 2)", "2,E": "(2, E)", "E,2": "(E, 2)"}[shape]
    sizes = array.shape if array.ndim == 2 else (0, 0)
    if sizes[0] == 2 and shape != "E,2":
        return array
    if sizes[1] == 2 and shape != "2,E":
        return array.T
    hint = "Or two files: SRC.npy,DST.npy"
    raise DataError(argument=str(path), given=f"shape {array.shape}", expected=f"shape {expected}", hint=hint)


def npy_pair(sources: Path, targets: Path, weights: Path | None = None) -> ArrayEdges:
    """Map two ``.npy`` files: sources and targets.

    Raises
    ------
    DataError
        If they are no vectors of integers of one length.
    """
    ends = _load(sources, (1,)), _load(targets, (1,))
    if len(ends[0]) != len(ends[1]):
        given = f"{len(ends[1])} targets for {len(ends[0])} sources"
        raise DataError(argument=str(targets), given=given, expected="as many")
    if ends[0].dtype != ends[1].dtype:
        given = f"{ends[1].dtype} targets for {ends[0].dtype} sources"
        raise DataError(argument=str(targets), given=given, expected="the same dtype in both files")
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
        expected = f"integers of at most 63 bits in {wanted} dimension(s)"
        raise DataError(argument=str(path), given=given, expected=expected)
    return array


def _weights(path: Path | None, count: int) -> NDArray[Any] | None:
    if path is None:
        return None
    weights = load_map(path)
    if weights.dtype not in (np.float32, np.float64) or weights.shape != (count,):
        given = f"dtype {weights.dtype} and shape {weights.shape}"
        raise DataError(argument=str(path), given=given, expected=f"{count} weights of float32 or float64")
    return weights
