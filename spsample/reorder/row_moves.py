"""Rows of arrays on disk in another order, moved in windows of bounded memory.

As in Data Tiering (Min et al., KDD 2022, algorithm 2), prefix sums of the lengths tell where each row
goes, and then every row can be moved by itself. A window is a range of the result. Its rows are put together by all
threads in memory and written in long pieces, while the next ones are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.threads import compiled_core
from spsample.features.gathering import row_reader
from spsample.reorder.array_files import ArrayFile
from spsample.store.mapping import load_pages, release_pages


class Runs(NamedTuple):
    """Rows of several lengths: row i of `source` goes where the prefix sums of the lengths of `places` say.

    Attributes
    ----------
    source : int64 array (rows + 1,)
        Where each row begins.
    places : int64 array (rows,)
        The row of the source that each row of the result is.
    pointers : int64 array (rows + 1,)
        Where each row of the result begins.
    """

    source: NDArray[np.int64]
    places: NDArray[np.int64]
    pointers: NDArray[np.int64]

    @classmethod
    def of(cls, source: NDArray[np.int64], places: NDArray[np.int64]) -> Runs:
        """Find where rows go: the prefix sums of their lengths.

        Examples
        --------
        >>> Runs.of(np.array([0, 2, 2, 5]), np.array([2, 0, 1])).pointers.tolist()
        [0, 3, 5, 5]
        """
        pointers = np.zeros(len(places) + 1, np.int64)
        np.cumsum(np.diff(source)[places], out=pointers[1:])
        return cls(source, places, pointers)

    def windows(self, entries: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows of the result with at most that many entries and rows, or of one row.

        Examples
        --------
        >>> list(Runs.of(np.array([0, 2, 2, 5]), np.array([2, 0, 1])).windows(4))
        [(0, 1), (1, 3)]
        """
        first, rows = 0, len(self.places)
        while first < rows:
            limit = int(self.pointers[first]) + entries
            end = int(np.searchsorted(self.pointers, limit, side="right")) - 1
            end = min(max(end, first + 1), first + entries, rows)
            yield first, end
            first = end


def move_rows(source: Any, places: NDArray[np.int64], file: ArrayFile, budget: int, *, is_cached: bool) -> None:
    """Write row ``places[i]`` of an array, for each i.

    Parameters
    ----------
    source : array (rows, numbers)
        Memory map.
    places : int64 array (rows,)
    file : ArrayFile
    budget : int
        Bytes of a window of rows, where the source is not cached.
    is_cached : bool
        Whether the system has memory for all of the source. If not, the rows of a window are read in the order of the
        file, and its pages let go.
    """
    reader, row_bytes = row_reader(np.asarray(source)), source[:1].nbytes
    if is_cached:
        load_pages(source)
        for wanted in _parts(places, file.piece_bytes, row_bytes):
            with file.room(len(wanted) * row_bytes) as memory:
                reader.gather(wanted, out=memory.view(source.dtype).reshape(len(wanted), source.shape[1]))
    else:
        window = np.empty((min(_rows_in(budget, row_bytes), len(places)), source.shape[1]), source.dtype)
        for wanted in _parts(places, budget, row_bytes):
            at = np.argsort(wanted, kind="stable")
            file.write(reader.gather(wanted[at], out=window[: len(wanted)], at=at))
            release_pages(source)
    release_pages(source)


def _rows_in(size: int, row_bytes: int) -> int:
    return max(1, size // max(1, row_bytes))


def _parts(places: NDArray[np.int64], size: int, row_bytes: int) -> Iterator[NDArray[np.int64]]:
    """Places of as many rows as `size` bytes hold, of one at least."""
    step = _rows_in(size, row_bytes)
    return (places[first : first + step] for first in range(0, len(places), step))


def move_runs(
    runs: Runs,
    arrays: dict[str, NDArray[Any]],
    files: dict[str, ArrayFile],
    budget: int,
    change: Callable[[int, int, dict[str, NDArray[Any]]], dict[str, NDArray[Any]]] | None = None,
) -> None:
    """Write rows of several lengths of arrays of entries, window by window.

    Parameters
    ----------
    runs : Runs
    arrays : dict of array (entries,)
        Memory maps.
    files : dict of ArrayFile
        Those that are written.
    budget : int
        Bytes of the windows that are in memory at a time.
    change : callable, optional
        Called with the first row of a window, the one after its last, and its arrays; returns what is written.
    """
    width = 2 * sum(array.itemsize for array in arrays.values()) + (0 if change is None else _CHANGE_BYTES)
    for first, end in runs.windows(max(1, budget // max(1, width))):
        rows = runs.places[first:end]
        window = {name: whole_rows(runs.source, array, rows) for name, array in arrays.items()}
        if change is not None:
            window = change(first, end, window)
        for name, file in files.items():
            file.write(window[name])
        for array in arrays.values():
            release_pages(array)


_CHANGE_BYTES = 64
"""What sorting takes for each entry."""
_WORDS = {4: np.int32, 8: np.int64}


def whole_rows(pointers: NDArray[np.int64], values: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the entries of rows, one row after the other: by all threads where the compiled core is there.

    Examples
    --------
    >>> whole_rows(np.array([0, 2, 2, 5]), np.array([5, 6, 7, 8, 9]), np.array([2, 0])).tolist()
    [7, 8, 9, 5, 6]
    """
    core, word = compiled_core(), _WORDS.get(values.itemsize)
    if core is not None and word is not None:
        taken: NDArray[Any] = core.select_rows(pointers, np.asarray(values).view(word), None, 0, rows)[1]
        return taken.view(values.dtype)
    starts, lengths = pointers[rows], pointers[rows + 1] - pointers[rows]
    begins = np.cumsum(lengths) - lengths
    picked: NDArray[Any] = values[np.repeat(starts - begins, lengths) + np.arange(int(lengths.sum()))]
    return picked


def copy_array(source: NDArray[Any], file: ArrayFile) -> None:
    """Write an array as it is, piece by piece."""
    step = _rows_in(file.piece_bytes, source[:1].nbytes)
    for first in range(0, len(source), step):
        file.write(source[first : first + step])
        release_pages(source)
