"""`DiskFeatures`: rows that stay on a disk, but for those that are wanted soonest; and the plan of its budget."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import refuse_removed, require_path, require_type
from spsample.common.locks import MendedInForks
from spsample.common.units import format_bytes
from spsample.errors import DataError, InputError
from spsample.features.formats import AsStored, RowFormat
from spsample.features.gathering import require_core
from spsample.features.keeper import budget_bytes, require_available
from spsample.features.source import FeatureSource, FileState, state_of_path
from spsample.store import GraphStore
from spsample.store.npy import npy_header
from spsample.store.row_order import ReorderedRows


class ArrayFile(NamedTuple):
    """Rows of numbers in a file, one after the other.

    Attributes
    ----------
    path : str
    begin : int
        The byte at which the first row begins.
    dtype : numpy.dtype
    shape : (int, int)
        Numbers of rows, and of numbers in a row.
    written : (int, int)
        Bytes of the file, and when it was last written, in nanoseconds.
    row_of_vertex : int array (rows,), optional
        The row of each vertex, in a store whose rows were moved; None: row v is that of vertex v.
    """

    path: str
    begin: int
    dtype: np.dtype[Any]
    shape: tuple[int, int]
    written: tuple[int, int]
    row_of_vertex: NDArray[Any] | None = None


def array_file_of(path: str | os.PathLike[str], name: str = "x") -> ArrayFile:
    """Return the file of a dense array: array `name` of the store in the folder `path`, or the ``.npy`` file `path`.

    Only headers are read. An array of one dimension has rows of one number.

    Raises
    ------
    InputError
        If the store has no features of that name, or they are sparse; or the array is not of real numbers in one or
        two dimensions, or has no rows or no columns.
    DataError
        If there is no such file, or it is damaged.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/x.npy", np.ones((3, 2), np.float16))
    >>> file = array_file_of(f"{folder.name}/x.npy")
    >>> file.begin, file.dtype, file.shape
    (128, dtype('float16'), (3, 2))
    >>> folder.cleanup()
    """
    file = Path(os.path.abspath(require_path("path", path)))
    if file.suffix != ".npy" or file.is_dir():
        return _of_store(file, name)
    header = npy_header(file)
    if header.is_fortran and len(header.shape) > 1:
        raise InputError(argument="path", given="an array in Fortran order", expected="rows that lie one by one")
    return _checked(file, header.begin, header.dtype, header.shape)


def _of_store(path: Path, name: str) -> ArrayFile:
    """The features of a store."""

    def take(store: GraphStore) -> ArrayFile:
        if name in store.feature_names and name not in store:
            expected = "dense features, or FeatureStore.open(path), which maps sparse ones"
            raise InputError(argument="name", given=f"{name!r}, whose rows are sparse", expected=expected)
        rows = store.features(name)
        file, begin = store.place(name)
        made = _checked(file, begin, rows.dtype, rows.shape)
        return made._replace(row_of_vertex=_map_of(path, rows)) if isinstance(rows, ReorderedRows) else made

    return GraphStore.read(path, take)


def _map_of(path: Path, moved: ReorderedRows) -> NDArray[Any]:
    """Return the row of each vertex, in memory."""
    rows = np.array(moved.rows)
    if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= len(moved.stored)):
        given, expected = f"rows from {rows.min()} to {rows.max()}", f"rows below {len(moved.stored)}"
        hint = "The store is damaged: copy it, or reorder it again."
        raise DataError(argument=str(path), given=f"a map to {given}", expected=expected, hint=hint)
    return rows


def _checked(path: Path, begin: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ArrayFile:
    if dtype.kind not in "fiub" or dtype.itemsize > 8 or not dtype.isnative:
        expected = "real numbers of at most 8 bytes, in the byte order of this machine"
        raise InputError(argument="path", given=f"numbers of {dtype.str}", expected=expected)
    if len(shape) not in (1, 2) or 0 in shape:
        raise InputError(argument="path", given=f"shape {shape}", expected="rows of at least one number")
    status = path.stat()
    rows = (shape[0], shape[1] if len(shape) == 2 else 1)
    return ArrayFile(str(path), begin, dtype, rows, (status.st_size, status.st_mtime_ns))


BLOCK_BYTES = 4096
"""Reads begin and end with a block of so many bytes."""

READS_AT_A_TIME = 32
_PAGE_BYTES = 512  # shorter rows share a page
_MAX_SHIFT = 20
_BYTES_PER_PAGE = 2  # six bit sets, three of them with places, and a count of 1 byte
_BYTES_PER_FRAME = 8  # beside the page: the two numbers of the map to it
_STACK_BYTES = 16 << 10
_MAX_READ = 256 << 10
_BUFFER_PART = 64  # 1/64 of the budget serves larger reads than a page needs
_MAX_BUFFER_PART = 16
_SET_PART = 8  # at most 1/8 of the budget is for the sets: pages are made larger instead
_KNOWN_PART = 16
_MAX_KNOWN = 32


class DiskPlan(NamedTuple):
    """The division of a budget.

    Attributes
    ----------
    shift : int
        A page is 2^shift rows.
    frames : int
        Pages that are kept.
    readers : int
        Reads at a time.
    buffer_blocks : int
        Blocks of the largest read.
    known_batches : int
        Batches that are known, whose pages are remembered.
    nbytes : int
        Memory of all of it.
    """

    shift: int
    frames: int
    readers: int
    buffer_blocks: int
    known_batches: int
    nbytes: int


def disk_plan(budget: int, num_rows: int, row_bytes: int, map_bytes: int = 0) -> DiskPlan:
    """Plan how `budget` bytes are spent on rows of a file; a budget of 0 serves nothing but reading them.

    A page has as many rows as fit in 512 bytes, at least one; more where the budget is too small for what each page of
    the file takes.

    Parameters
    ----------
    budget, num_rows, row_bytes : int
    map_bytes : int, optional
        What leads from vertices to rows, where these lie in another order; part of the budget, if that is not 0.

    Raises
    ------
    InputError
        If the budget is above 0, and not enough for one page and what is needed beside it.
    CapacityError
        If so much memory is not available.

    Examples
    --------
    >>> plan = disk_plan(64 << 20, num_rows=500_000, row_bytes=512)
    >>> 1 << plan.shift, plan.frames, plan.known_batches, plan.nbytes <= 64 << 20
    (1, 120261, 32, True)
    """
    plan = _plan(budget, num_rows, row_bytes, map_bytes)
    if budget > 0 and plan.frames < 1:
        enough = 1 << budget.bit_length()
        while _plan(enough, num_rows, row_bytes, map_bytes).frames < 1:
            enough *= 2
        expected = f"0, or {format_bytes(enough)}, which is enough"
        raise InputError(argument="budget", given=format_bytes(budget), expected=expected)
    require_available("budget", plan.nbytes, lambda: format_bytes(budget))
    return plan


def _plan(budget: int, num_rows: int, row_bytes: int, map_bytes: int) -> DiskPlan:
    """The plan; with fewer than one frame where the budget is too small."""
    shift = max(_PAGE_BYTES // row_bytes, 1).bit_length() - 1
    while budget and shift < _MAX_SHIFT and (_BYTES_PER_PAGE * num_rows >> shift) > budget // _SET_PART:
        shift += 1
    page_bytes, num_pages = row_bytes << shift, -(-num_rows >> shift)
    least = -(-(page_bytes + 2 * BLOCK_BYTES - 2) // BLOCK_BYTES)  # a page may lie on two blocks more than it is long
    blocks = max(least, min(budget // _BUFFER_PART // READS_AT_A_TIME, _MAX_READ) // BLOCK_BYTES)
    reader_bytes = blocks * BLOCK_BYTES + _STACK_BYTES
    readers = max(1, min(READS_AT_A_TIME, budget // _MAX_BUFFER_PART // reader_bytes)) if budget else READS_AT_A_TIME
    beside = map_bytes + _BYTES_PER_PAGE * num_pages + readers * reader_bytes
    set_bytes = 8 * -(-num_pages // 64)
    known = 0 if budget == 0 else max(1, min(_MAX_KNOWN, budget // _KNOWN_PART // set_bytes))
    frame_bytes = page_bytes + _BYTES_PER_FRAME
    frames = 0 if budget == 0 else (budget - beside - known * set_bytes) // frame_bytes
    frames = min(frames, num_pages)
    nbytes = frames * frame_bytes + beside + known * set_bytes
    return DiskPlan(shift, frames, readers, blocks, known, nbytes)


class DiskCounts(NamedTuple):
    """Rows that `DiskFeatures` has gathered, and reads for them.

    Attributes
    ----------
    hits, misses : int
        Rows from memory and from the disk, repeats counted.
    reads, read_bytes : int
        Reads of the file, and their bytes, in whole blocks of 4 KiB.

    Examples
    --------
    >>> DiskCounts(hits=3, misses=1, reads=1, read_bytes=4096).hit_share
    0.75
    """

    hits: int
    misses: int
    reads: int
    read_bytes: int

    @property
    def hit_share(self) -> float:
        """Hits of all rows; 0 where there are none."""
        return self.hits / max(self.hits + self.misses, 1)


class DiskFeatures(MendedInForks, FeatureSource):
    """Feature rows in a file on a disk, of which a budget of memory holds those that are wanted soonest.

    Use it where features are larger than memory. `gather` finds which rows are not in memory and reads them in the
    order of the file, 32 reads at a time, past the system's cache of pages: beside the budget no memory is taken. What
    is read and wanted again soon is kept in place of what is wanted later. What a batch will want is known where the
    loader announces it (`prefetch_hint`); beyond that, and without, rows that were wanted most often stay.

    Parameters
    ----------
    path : path-like
        The folder of a store, or an ``.npy`` file in C order.
    budget : int or str
        Bytes, or text such as ``"2GiB"``, for all that is kept: rows, the map to them, known batches, buffers
        of reads; of a reordered store the map to rows. 0: nothing else is kept. More than all rows: all of them, once
        they were read. Beside it a call takes 8 bytes for each of its ids while it runs, twice as many with a map.
    name : str, optional
        As of `FeatureStore.open`; of an ``.npy`` file no matter.
    form : RowFormat, optional
        What the stored numbers stand for (`spsample.features.gathering`). By default for themselves.
    direct : bool, optional
        Whether to read past the system's cache of pages where the file system can (``O_DIRECT``). Where it cannot, and
        with False, what was read is dropped from that cache after each read.

    Attributes
    ----------
    file : ArrayFile
        Where the rows lie.
    plan : DiskPlan
        What the budget is spent on.
    direct : bool
        Whether the file is read past the system's cache of pages.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used, the features are sparse or empty, or the budget is above 0 and too small.
    DataError
        If there is no such store or file, or it is damaged.
    CapacityError
        If so much memory is not available.
    BackendError
        If the compiled core is missing.

    Notes
    -----
    Threads may gather side by side; one does so at a time, with the threads of its call. Features are pickled as their
    recipe: path, budget and options; what was kept is read anew. A file that was written to since it was opened is
    refused by the next `gather`, and where a recipe is opened.

    References
    ----------
    Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966. Park et al.,
    "Ginex: SSD-enabled billion-scale graph neural network training on a single machine via provably optimal in-memory
    caching", VLDB 2022.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/x.npy", np.arange(200_000, dtype=np.float32).reshape(-1, 4))
    >>> with DiskFeatures(f"{folder.name}/x.npy", budget="256KiB") as features:
    ...     features.prefetch_hint([[3, 40_000], [40_000, 0]])
    ...     first, second = features.gather([3, 40_000]), features.gather([40_000, 0])
    ...     print(second[0], features.counts.hits)  # the row of vertex 0 came with that of vertex 3
    [160000. 160001. 160002. 160003.] 2
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        budget: int | str,
        *,
        name: str = "x",
        form: RowFormat | None = None,
        direct: bool = True,
        **removed: NoReturn,
    ) -> None:
        super().__init__()
        refuse_removed("DiskFeatures", removed, page_rows="Leave it out: the plan chooses the rows of a page.")
        size = budget_bytes(budget)
        require_type("direct", direct, bool, "True or False")
        self.file = array_file_of(path, name)
        self.num_rows, self.dim = self.file.shape
        self._row_of_vertex = self.file.row_of_vertex
        map_bytes = 0 if self._row_of_vertex is None else self._row_of_vertex.nbytes
        self.plan = disk_plan(size, self.num_rows, self.dim * self.file.dtype.itemsize, map_bytes)
        self._form = AsStored(self.file.dtype) if form is None else form
        require_type("form", self._form, RowFormat, "a RowFormat")
        if form is not None and form.dtype != self.file.dtype:
            given, expected = f"{form.name}, kept as {form.dtype}", f"one of {self.file.dtype}"
            raise InputError(argument="form", given=given, expected=expected)
        # Numbers that have to be decoded are kept by a cache as what they stand for.
        self.stored_dtype = np.dtype(np.float32) if self._form.is_coded else self.file.dtype
        self._recipe = (str(path), budget, {"name": name, "form": form, "direct": direct})
        self._rows: Any = _opened_rows(self.file, self.plan, direct)
        self._waiting: deque[NDArray[Any]] = deque()  # hinted batches that the core has no room for yet
        self.direct: bool = self._rows.direct

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle features as their recipe, so that worker processes open the file themselves."""
        self._open_rows()
        return _of_recipe, (*self._recipe, self.file.written)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are taken at most; within the budget, but where that is 0."""
        return self.plan.nbytes

    @property
    def looks_ahead(self) -> bool:
        """True where hints make a difference: not where all rows or none are kept."""
        return 0 < self.plan.frames << self.plan.shift < self.num_rows

    @property
    def counts(self) -> DiskCounts:
        """Rows that were gathered, and reads, since the beginning, or the last `reset_counts`."""
        return DiskCounts(*self._open_rows().counts())

    def reset_counts(self) -> None:
        """Count from 0 again."""
        self._open_rows().reset_counts()

    def file_state(self) -> FileState | None:
        """Return the state of the file, which changes when it is written to."""
        return state_of_path(self.file.path)

    def _hint(self, batches: list[Any] | None) -> None:
        if batches is not None:
            self._announce(self._open_rows(), [self._lying(ids) for ids in batches])
        elif self._rows is not None:  # nothing after `close`
            rows = self._open_rows()
            with self._lock():
                self._waiting.clear()
                rows.forget()

    def _announce(self, rows: Any, batches: Iterable[NDArray[Any]] = ()) -> None:
        """Append batches, and announce as many of the first ones to the core as it has room for."""
        with self._lock():
            self._waiting.extend(batches)
            while self._waiting and rows.announce(self._waiting[0]):
                self._waiting.popleft()

    def _read(self, ids: NDArray[Any], out: Any, at: NDArray[np.int64] | None = None) -> None:
        rows = self._open_rows()
        form, scale = self._form.core_name, self._form.scale
        if out.dtype != np.float32:
            form, scale = "stored", None
        if len(ids):
            try:
                rows.gather(self._lying(ids), form, scale, out.reshape(-1), at)
            except OSError as error:
                raise _unreadable(self.file, error) from error
            self._announce(rows)

    def close(self) -> None:
        """Free the memory and close the file; the last call."""
        self._rows = None

    def __enter__(self) -> DiskFeatures:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        kept = f"{format_bytes(self.nbytes)} of memory for {self.plan.frames << self.plan.shift:,} rows"
        how = "O_DIRECT" if self.direct else "by the system's cache of pages, dropped after each read"
        return f"DiskFeatures({self.num_rows:,} x {self.dim:,}, {self.file.dtype}, {kept}, {how})"

    def _lying(self, vertices: NDArray[Any]) -> NDArray[Any]:
        """The rows of vertices in the file."""
        return vertices if self._row_of_vertex is None else self._row_of_vertex.take(vertices)

    def _open_rows(self) -> Any:
        with self._lock():
            rows = self._rows
        if rows is None:
            raise InputError(argument="features", given="DiskFeatures that were closed", expected="ones that are open")
        return rows

    def _renew(self) -> None:
        """In a forked process: locks of the rows that it began with may be held by threads that it has not."""
        if self._rows is not None:
            self._of_parent, self._rows = self._rows, _opened_rows(self.file, self.plan, self.direct)
        self._waiting = deque()


def _of_recipe(path: str, budget: int | str, options: dict[str, Any], written: tuple[int, int]) -> DiskFeatures:
    features = DiskFeatures(path, budget, **options)
    if features.file.written != written:
        raise _unreadable(features.file, OSError(0, "it was written to since the features were pickled"))
    return features


def _opened_rows(file: ArrayFile, plan: DiskPlan, direct: bool) -> Any:
    """The core's reader of the file."""
    core = require_core("DiskFeatures")
    row_bytes = file.shape[1] * file.dtype.itemsize
    layout = (file.begin, file.shape[0], row_bytes, plan.shift)
    limits = (plan.frames, plan.readers, plan.buffer_blocks, plan.known_batches)
    try:
        rows = core.DiskRows(file.path, direct, layout, f"{file.dtype.kind}{file.dtype.itemsize}", limits, file.written)
    except OSError as error:
        raise _unreadable(file, error) from error
    return rows


def _unreadable(file: ArrayFile, error: OSError) -> DataError:
    hint = "Open the features again if the file was changed on purpose."
    given = error.strerror or str(error)
    return DataError(argument=file.path, given=given, expected="the file that was opened, whole", hint=hint)
