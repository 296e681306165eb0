"""Rows of arrays on disk in another order, moved in windows of bounded memory.

As in Data Tiering (Min et al., KDD 2022, algorithm 2), prefix sums of the lengths are the places where each row
goes, and then every row can be moved by itself. A window is a range of the result. Its rows are put together by all
threads in memory and written in long pieces, while the next ones are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.threads import compiled_core
from spsample.data.labels import SPLIT_IDS, SPLIT_MASKS
from spsample.features.gathering import row_reader
from spsample.reorder.array_files import RowFile
from spsample.store import GraphStore
from spsample.store.construction import row_entries
from spsample.store.folder import file_error
from spsample.store.layout import MAP_ARRAYS
from spsample.store.npy import load_pages, release_pages

ENTRIES = ("indices", "data", "edge_ids")
PERMUTATION = "relabelled_from"
"""Array of a store with vertices numbered anew: the number that each had before."""

_BY_VERTEX = ("y", "original_ids", PERMUTATION)
_RUNS = {"names_data": "names_ptr", "x_indices": "x_indptr", "x_data": "x_indptr"}
"""Arrays of rows of several lengths, and where each row begins."""


class Kinds(NamedTuple):
    """Names of arrays of a store, by what is done to them.

    Attributes
    ----------
    rows : tuple of str
        One row for each vertex, which is moved.
    runs : dict of str to str
        Rows of several lengths, which are moved, and the array of their row pointers.
    ids : tuple of str
        Vertex ids, which are numbered anew.
    masks : tuple of str
        One column for each vertex, which is moved.
    kept : tuple of str
        What is copied as it is.
    """

    rows: tuple[str, ...]
    runs: dict[str, str]
    ids: tuple[str, ...]
    masks: tuple[str, ...]
    kept: tuple[str, ...]


def kinds_of(store: GraphStore, *, relabel: bool) -> Kinds:
    """Return what is done to the arrays beside the graph's own: with a map only features that are dense are moved.

    Raises
    ------
    DataError
        With `relabel`, if the store has an array whose rows may be vertices or not.

    Examples
    --------
    >>> import tempfile
    >>> from spsample.data import planted, save_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_dataset(planted(60, 3, 2), f"{folder.name}/planted")
    >>> kinds_of(GraphStore.open(f"{folder.name}/planted"), relabel=False).rows
    ('x',)
    >>> folder.cleanup()
    """
    meta = store.meta
    of_vertices = {"x", *meta.get("node_features", [])} - set(meta.get("edge_features", []))
    others = [name for name in store.names if name not in ("indptr", *ENTRIES, *MAP_ARRAYS)]
    rows = [name for name in others if name in of_vertices or (relabel and name in _BY_VERTEX)]
    runs = {name: pointers for name, pointers in _RUNS.items() if relabel and name in others}
    ids = [name for name in others if relabel and name in SPLIT_IDS]
    masks = [name for name in others if relabel and name in SPLIT_MASKS]
    done = {*rows, *runs, *runs.values(), *ids, *masks}
    kept = [name for name in others if name not in done]
    unknown = [name for name in kept if relabel and name not in meta.get("edge_features", [])]
    if unknown:
        raise file_error(
            store.path,
            f"an array {unknown[0]}, of which nothing says whether its rows are vertices",
            "arrays that the form of stores knows",
            'List it in meta.json as "node_features" or "edge_features", or reorder without new numbers.',
        )
    return Kinds(tuple(rows), runs, tuple(ids), tuple(masks), tuple(kept))


def inverse(order: NDArray[Any], dtype: Any = np.int64) -> NDArray[Any]:
    """Return the permutation that undoes one.

    Examples
    --------
    >>> inverse(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    places = np.empty(len(order), dtype)
    places[order] = np.arange(len(order), dtype=dtype)
    return places


@dataclass(frozen=True, eq=False)
class Renumbering:
    """Change windows of rows: sources get new numbers and ascend, parallel edges keep their order.

    Parameters
    ----------
    number : int array (n,)
        The new number of each vertex, of the type of the sources.
    pointers : int64 array (rows + 1,)
        Row pointers of the result.
    first_ids : int64 array (rows,) or None
        The edge id of the first entry of each row of the result, where edge ids are not stored but count entries; None
        where they are, or where none are wanted.

    Examples
    --------
    >>> change = Renumbering(np.array([2, 0, 1]), np.array([0, 2, 3]), np.array([1, 0]))
    >>> made = change(0, 2, {"indices": np.array([0, 2, 1])})
    >>> made["indices"].tolist(), made["edge_ids"].tolist()
    ([1, 2, 0], [2, 1, 0])
    """

    number: NDArray[Any]
    pointers: NDArray[np.int64]
    first_ids: NDArray[np.int64] | None = None

    def __call__(self, first: int, end: int, window: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays of entries of rows `first` to `end - 1`, as they are written."""
        pointers = self.pointers[first : end + 1] - self.pointers[first]
        columns = self.number[window["indices"]]
        if self.first_ids is not None:
            rows = np.repeat(self.first_ids[first:end] - pointers[:-1], np.diff(pointers))
            window = {**window, "edge_ids": rows + np.arange(len(columns))}
        order = _sorting(pointers, columns, len(self.number))
        return {name: (columns if name == "indices" else array)[order] for name, array in window.items()}


def _sorting(pointers: NDArray[np.int64], columns: NDArray[Any], num_columns: int) -> NDArray[np.int64]:
    """Return the entries sorted by column within each row, equal ones in their order.

    Row, column and place in the row are sorted as one integer where it holds them: several times as fast.
    """
    lengths, rows = np.diff(pointers), len(pointers) - 1
    bits = [int(number).bit_length() for number in (rows, num_columns, lengths.max(initial=0))]
    if sum(bits) > _KEY_BITS:
        return np.lexsort((columns, np.repeat(np.arange(rows), lengths)))
    first = np.repeat(pointers[:-1], lengths)
    keys = np.repeat(np.arange(rows) << (bits[1] + bits[2]), lengths)
    keys |= columns.astype(np.int64) << bits[2]
    keys |= np.arange(len(columns)) - first
    keys.sort()
    keys &= (1 << bits[2]) - 1
    keys += first  # rows have not changed places
    return keys


_KEY_BITS = 63


class RowRuns(NamedTuple):
    """Rows of several lengths: they go to the prefix sums of the lengths, in the order of `places`.

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
    def of(cls, source: NDArray[np.int64], places: NDArray[np.int64]) -> RowRuns:
        """Find where rows go: the prefix sums of their lengths.

        Examples
        --------
        >>> RowRuns.of(np.array([0, 2, 2, 5]), np.array([2, 0, 1])).pointers.tolist()
        [0, 3, 5, 5]
        """
        pointers = np.zeros(len(places) + 1, np.int64)
        np.cumsum(np.diff(source)[places], out=pointers[1:])
        return cls(source, places, pointers)

    def windows(self, entries: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows of the result with at most that many entries and rows, or of one row.

        Examples
        --------
        >>> list(RowRuns.of(np.array([0, 2, 2, 5]), np.array([2, 0, 1])).windows(4))
        [(0, 1), (1, 3)]
        """
        first, rows = 0, len(self.places)
        while first < rows:
            limit = int(self.pointers[first]) + entries
            end = int(np.searchsorted(self.pointers, limit, side="right")) - 1
            end = min(max(end, first + 1), first + entries, rows)
            yield first, end
            first = end


def move_rows(source: Any, places: NDArray[np.int64], file: RowFile, budget: int, *, is_cached: bool) -> None:
    """Write row ``places[i]`` of an array, for each i.

    Parameters
    ----------
    source : array (rows, numbers)
        Memory map.
    places : int64 array (rows,)
    file : RowFile
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
    runs: RowRuns,
    arrays: dict[str, NDArray[Any]],
    files: dict[str, RowFile],
    budget: int,
    change: Callable[[int, int, dict[str, NDArray[Any]]], dict[str, NDArray[Any]]] | None = None,
) -> None:
    """Write rows of several lengths of arrays of entries, window by window.

    Parameters
    ----------
    runs : RowRuns
    arrays : dict of array (entries,)
        Memory maps.
    files : dict of RowFile
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
"""Bytes that sorting takes for each entry."""
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
    picked: NDArray[Any] = values[row_entries(pointers, rows)]
    return picked
