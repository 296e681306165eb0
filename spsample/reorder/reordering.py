"""`reorder` and `restore`: from a store to one with its rows in another order, and back."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_path, require_type
from spsample.common.memory import available_memory
from spsample.common.threads import usable_cores
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import InputError
from spsample.features.scores.order import hottest
from spsample.features.scores.registry import require_scores
from spsample.reorder.array_files import RowFile, Workers
from spsample.reorder.row_moves import (
    ENTRIES,
    PERMUTATION,
    Renumbering,
    RowRuns,
    inverse,
    kinds_of,
    move_rows,
    move_runs,
)
from spsample.sampling.sampler import require_bool
from spsample.store import GraphStore, StoreWriter
from spsample.store.folder import file_error, require_free_path, require_room, system_errors
from spsample.store.layout import MAP_ARRAYS, OWN_KEYS, array_file
from spsample.store.npy import read_ahead, release_pages

Progress = Callable[[str, int, "int | None"], None]
"""Told of the phase, what of it is done, and its whole (None where that is not known)."""

MEMORY_BUDGET = 512 * 2**20
"""Bytes of a window of rows, where none are given."""

_META_BYTES = 2**20
_CACHED_WINDOW = 64 * 2**20
_MAX_HASHING = 16
_MIN_EXPONENT = 2000
"""No float64 has an exponent below this number's negative."""


@dataclass(frozen=True)
class Reordering:
    """A store that was written: the store, its sizes, whether its vertices have new numbers, bytes and seconds."""

    path: str
    num_nodes: int
    num_edges: int
    relabelled: bool
    nbytes: int
    seconds: float


def reorder(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    scores: Any,
    *,
    relabel: bool = False,
    exact: bool = False,
    name: str = "given",
    memory_budget: int | str = MEMORY_BUDGET,
    progress: Progress | None = None,
) -> Reordering:
    """Write a store with the rows of A and of dense features in the order of scores, highest first.

    Scores of one binary exponent, which are within a factor of two, count as equal, and their rows keep the order that
    they had: vertices that are needed together often lie together already, and a page of them is read once.

    Vertices keep their numbers: a map leads from a vertex to its row, and minibatches are the same, bit for bit. With
    `relabel` vertices are numbered in the order of scores instead. That is another graph, which needs no map, and its
    minibatches are others; labels, splits and names go along.

    Parameters
    ----------
    path : path-like
        A store. One whose rows were moved before is taken as the graph that it is.
    out : path-like
        The store to make, which must not exist.
    scores : array-like (n,)
        Finite numbers of at least 0, such as `spsample.features.score` gives.
    relabel : bool, optional
        Number vertices anew.
    exact : bool, optional
        Order by the scores themselves; of equal ones the lower vertex is first.
    name : str, optional
        The origin of the scores, which the store keeps as a fact.
    memory_budget : int or str, optional
        Bytes, or text such as "512MiB", of what is in memory at a time, besides some 50 bytes for each vertex.
    progress : callable, optional
        Called with (phase, bytes done, all bytes).

    Returns
    -------
    Reordering

    Raises
    ------
    InputError, DTypeError
        If the scores cannot be used, or `out` exists, or is the store itself.
    CapacityError
        If the disk has not the room; it names the bytes needed and free.
    DataError
        If the store cannot be read, or the other not be written. Nothing is left behind.

    Notes
    -----
    Min, Wu, Hidayetoglu, Xiong, Song, Hwu, "Graph neural network training and data tiering", KDD 2022, algorithm 2. One
    sort of n scores, and every row is read and written once. Where an array has more bytes than half of the memory that
    is available, a page of small rows is read once for each window that has one of them.

    Examples
    --------
    >>> import tempfile
    >>> import spsample as sp
    >>> folder = tempfile.TemporaryDirectory()
    >>> sp.Graph([0, 2, 3, 3], [1, 2, 0]).save(f"{folder.name}/g")
    >>> _ = reorder(f"{folder.name}/g", f"{folder.name}/by_score", [1, 5, 3])
    >>> store = sp.store.GraphStore.open(f"{folder.name}/by_score")
    >>> store.row_of_vertex().tolist(), store.array("indices").tolist(), store.graph().indices.tolist()
    ([2, 0, 1], [0, 1, 2], [1, 2, 0])
    >>> folder.cleanup()
    """
    source, target = check_paths(path, out)
    relabel, exact = require_bool("relabel", relabel), require_bool("exact", exact)
    require_type("name", name, str, "text")
    store = GraphStore.open(source)
    n = int(store.meta["num_nodes"])
    values = require_scores("scores", scores, n)
    order = hottest(values if exact else score_classes(values), n)
    kind, made_of = store.specs["indices"].dtype, {"score": name, "digest": store.digest}
    arrays: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    number = inverse(order, kind)
    if not relabel:
        indptr = store.array("vertex_indptr" if store.is_reordered else "indptr")
        arrays = dict(zip(MAP_ARRAYS, (number, order.astype(kind), indptr), strict=True))
        facts["reordered"] = made_of
    elif PERMUTATION not in store:  # of new numbers given twice it is the first ones that are remembered
        arrays[PERMUTATION] = order.astype(kind)
        facts["relabelled"] = {**made_of, "edge_ids": "edge_ids" in store}
    task = _Task(store, order, number if relabel else None, arrays, facts, ("reordered",))
    return _Reorderer(task, target, require_bytes("memory_budget", memory_budget), progress).write()


def restore(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory_budget: int | str = MEMORY_BUDGET,
    progress: Progress | None = None,
) -> Reordering:
    """Write the store that another one was made of by `reorder`: its files are equal, byte for byte.

    Where rows were moved and vertices numbered anew, the rows are moved back; call it again for the numbers.

    Parameters
    ----------
    path, out, memory_budget, progress
        As of `reorder`.

    Returns
    -------
    Reordering

    Raises
    ------
    InputError, CapacityError, DataError
        As `reorder`; also if the store was not made by it, or what comes out is not the graph that it was.

    Examples
    --------
    >>> import tempfile
    >>> import spsample as sp
    >>> folder = tempfile.TemporaryDirectory()
    >>> sp.Graph([0, 2, 3, 3], [1, 2, 0]).save(f"{folder.name}/g")
    >>> _ = reorder(f"{folder.name}/g", f"{folder.name}/new", [1, 5, 3], relabel=True)
    >>> _ = restore(f"{folder.name}/new", f"{folder.name}/back")
    >>> one, other = (Path(folder.name, store, "indices.npy").read_bytes() for store in ("g", "back"))
    >>> one == other
    True
    >>> folder.cleanup()
    """
    source, target = check_paths(path, out)
    store = GraphStore.open(source)
    if store.is_reordered:
        task = _Task(store, np.arange(store.meta["num_nodes"]), None, {}, {}, ("reordered",))
        digest = store.digest
    elif PERMUTATION in store and isinstance(store.meta.get("relabelled"), dict):
        number, facts = np.asarray(store.array(PERMUTATION)), store.meta["relabelled"]
        left_out = ("relabelled", PERMUTATION, *(() if facts.get("edge_ids") else ("edge_ids",)))
        task = _Task(store, inverse(number), number, {}, {}, left_out)
        digest = str(facts.get("digest"))
    else:
        raise InputError(argument="path", given=f"{source}, as it was made", expected="a store made by reorder")
    done = _Reorderer(task, target, require_bytes("memory_budget", memory_budget), progress).write()
    if GraphStore.open(target).digest != digest:
        shutil.rmtree(target)
        expected = "the graph of which the store says that it was made"
        raise file_error(source, "another graph", expected, "The store is damaged.")
    return done


def score_classes(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the same number for scores of one binary exponent, a larger one for larger scores, and 0 for 0.

    Examples
    --------
    >>> score_classes(np.array([0.0, 3.0, 2.0, 4.0])).argsort(kind="stable").tolist()
    [0, 1, 2, 3]
    """
    return np.where(scores > 0, np.frexp(scores)[1] + _MIN_EXPONENT, 0).astype(np.float64)


def check_paths(path: Any, out: Any) -> tuple[Path, Path]:
    """Return both paths, if a store may be made at `out` of the one at `path`.

    Raises
    ------
    InputError
        If `out` is the store itself, or within it, or exists.
    """
    source, target = require_path("path", path), require_path("out", out)
    if os.path.realpath(source) == os.path.realpath(target):
        raise InputError(argument="out", given=f"{target}, the store itself", expected="a path that does not exist")
    require_free_path("out", target)
    if Path(os.path.realpath(source)) in Path(os.path.realpath(target)).parents:
        raise InputError(argument="out", given=f"{target}, within the store", expected="a path outside of it")
    return source, target


class _Task(NamedTuple):
    """Contents of the store to be written.

    Attributes
    ----------
    store : GraphStore
    order : int64 array (n,)
        The vertex, by its number in the store, of each row of the result.
    number : int array (n,) or None
        The new number of each vertex; None: they keep theirs.
    arrays : dict of array
        Added to those of the store.
    facts : dict
        Added to those of the store.
    left_out : tuple of str
        Arrays and facts of the store that are not; edge ids that only count entries are written unless they are here.
    """

    store: GraphStore
    order: NDArray[np.int64]
    number: NDArray[Any] | None
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]
    left_out: tuple[str, ...]


class _Reorderer:
    """Writes the store of a task, step by step."""

    def __init__(self, task: _Task, out: Path, budget: int, progress: Progress | None) -> None:
        self.task, self.out, self.budget = task, out, budget
        self.kinds = kinds_of(task.store, relabel=task.number is not None)
        self._report = progress or (lambda *_: None)
        self._done = 0
        self._sizes = self._planned()
        self._total = sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, shape in self._sizes.values())

    def write(self) -> Reordering:
        """Write the store."""
        started = time.perf_counter()
        require_room("out", self.out, self._total + _META_BYTES)
        with StoreWriter(self.out) as writer:
            arrays = {name: writer.create(name, dtype, shape) for name, (dtype, shape) in self._sizes.items()}
            room = f"room for {format_bytes(self._total)} on the disk"
            with system_errors(self.out, room), ExitStack() as stack:
                workers = stack.enter_context(Workers(min(usable_cores(), _MAX_HASHING), self.budget // 2))
                files = {
                    name: stack.enter_context(RowFile(writer.folder / array_file(name), array, workers, self._wrote))
                    for name, array in arrays.items()
                }
                self._write_graph(files)
                self._write_others(files)
                for name, file in files.items():
                    writer.use_checksums(name, file.checksums())
            left_out = {*OWN_KEYS, *self.task.left_out}
            kept = {key: value for key, value in self.task.store.meta.items() if key not in left_out}
            writer.set(**(kept | self.task.facts))
        meta, relabelled, seconds = self.task.store.meta, self.task.number is not None, time.perf_counter() - started
        return Reordering(str(self.out), meta["num_nodes"], meta["num_edges"], relabelled, self._total, seconds)

    # ------------------------------------------------------------------------------------------------- before work

    def _planned(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of every array, in the order of the store."""
        task = self.task
        dropped = {*task.left_out, *MAP_ARRAYS}
        sizes = {name: (spec.dtype, spec.shape) for name, spec in task.store.specs.items() if name not in dropped}
        if task.number is not None and "edge_ids" not in dropped | sizes.keys():
            sizes["edge_ids"] = np.dtype(np.int64), sizes["indices"][1]
        return sizes | {name: (array.dtype, array.shape) for name, array in task.arrays.items()}

    # ---------------------------------------------------------------------------------------------------- the work

    def _wrote(self, count: int) -> None:
        self._done += count
        self._report("moving", self._done, self._total)

    def _open(self, name: str) -> tuple[NDArray[Any], bool]:
        """An array of the store, and whether the system is asked to read all of it ahead, for it has the memory."""
        is_cached = self.task.store.specs[name].nbytes <= available_memory() // 2
        array = self.task.store.array(name)
        if is_cached:
            read_ahead(array)
        return array, is_cached

    def _window(self, *, is_cached: bool) -> int:
        """Bytes of the windows in memory, beside what is written: no more than is of use where the source is cached."""
        return min(self.budget // 2, _CACHED_WINDOW) if is_cached else self.budget // 2

    def _source_rows(self) -> NDArray[np.int64]:
        """Places in the store of the rows that are to follow one another."""
        rows = self.task.store.row_of_vertex()
        return self.task.order if rows is None else np.asarray(rows)[self.task.order].astype(np.int64)

    def _write_graph(self, files: dict[str, RowFile]) -> None:
        store, number = self.task.store, self.task.number
        for name in self.kinds.rows:  # the disk reads ahead what comes next
            self._open(name)
        runs = RowRuns.of(np.asarray(store.array("indptr")), self._source_rows())
        files["indptr"].write(runs.pointers)
        opened = {name: self._open(name) for name in ENTRIES if name in store and name in files}
        entries = {name: array for name, (array, _) in opened.items()}
        are_cached = all(is_cached for _, is_cached in opened.values())
        change = None
        if number is not None:
            first_ids = None
            if "edge_ids" in files and "edge_ids" not in store:
                first_ids = store.array("vertex_indptr" if store.is_reordered else "indptr")[self.task.order]
            change = Renumbering(number, runs.pointers, first_ids)
        written = {name: file for name, file in files.items() if name in ENTRIES}
        move_runs(runs, entries, written, self._window(is_cached=are_cached), change)

    def _write_others(self, files: dict[str, RowFile]) -> None:
        task, kinds = self.task, self.kinds
        moved_before = kinds_of(task.store, relabel=False).rows if task.store.is_reordered else ()
        for name in (moved for moved in kinds.rows if moved in files):
            source, is_cached = self._open(name)
            places = self._source_rows() if name in moved_before else task.order
            rows, window = source.reshape(len(source), -1), self._window(is_cached=is_cached)
            move_rows(rows, places, files[name], window, is_cached=is_cached)
        for pointers in dict.fromkeys(kinds.runs.values()):
            names = [name for name, own in kinds.runs.items() if own == pointers]
            runs = RowRuns.of(np.asarray(task.store.array(pointers), np.int64), task.order)
            files[pointers].write(runs.pointers.astype(task.store.specs[pointers].dtype))
            arrays = {name: task.store.array(name) for name in names}
            move_runs(runs, arrays, {name: files[name] for name in names}, self._window(is_cached=False))
        for name in kinds.ids:
            ids = np.asarray(task.store.array(name))
            files[name].write(np.asarray(task.number)[ids].astype(ids.dtype))
        for name in kinds.masks:
            for mask in task.store.array(name):
                files[name].write(mask[task.order])
        for name in kinds.kept:
            array = task.store.array(name)
            files[name].write(array)
            release_pages(array)
        for name, array in task.arrays.items():
            files[name].write(array)
