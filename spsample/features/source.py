"""`FeatureSource`: the base of everything that holds features; and a guard of rows whose file is written to."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from spsample.comm import Communicator, LocalCommunicator, collective
from spsample.common.checks import require_iterable
from spsample.errors import DataError, InputError
from spsample.features.gathering import new_rows, require_destination
from spsample.store.validation import as_id_vector, as_vertex_ids, check_ids

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from spsample.features.gathering import RowReader


_ALONE = LocalCommunicator()


class FeatureSource(ABC):
    """Rows of features by vertex id. Stores, caches and exchanges compose by wrapping one another.

    A source of your own is derived from it: it has `num_rows` and `dim`, and writes rows in ``_read``. It may have more
    of what is listed here, each of which has a default.

    Attributes
    ----------
    num_rows : int
        Number of vertices.
    dim : int
        Number of features per vertex.
    stored_dtype : numpy.dtype
        The type of the numbers as they are kept; rows go to an ``out`` of it as they are. float32 by default.
    device
        The device that rows come out on; None (default): the memory of the host.

    Examples
    --------
    >>> class Squares(FeatureSource):
    ...     num_rows, dim = 10, 1
    ...
    ...     def _read(self, ids, out, at=None):
    ...         out[slice(None) if at is None else at] = (ids * ids)[:, None]
    >>> Squares().gather([3, 2])
    array([[9.],
           [4.]], dtype=float32)
    """

    num_rows: int
    dim: int
    stored_dtype: np.dtype[Any] = np.dtype(np.float32)
    device: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "gather" in vars(cls):
            expected = "_read(ids, out, at), which gather calls with checked arguments"
            raise InputError(argument=cls.__name__, given="a FeatureSource with a gather of its own", expected=expected)

    # ----------------------------------------------------------------------------------------------------- rows

    def gather(self, ids: ArrayLike, out: Any = None, at: ArrayLike | None = None) -> NDArray[np.float32]:
        """Return the features of the vertices ``ids``, repeats allowed.

        Where several ranks gather together (`comm`) the call is collective; ``ids`` may be empty.

        Parameters
        ----------
        ids
            Vertex ids, integers, one dimension. Of a source on a device also an array there (of a sample), which is
            not checked.
        out : array (places, dim), optional
            Where rows go, in C order: float32, or of `stored_dtype`, whose numbers are then not converted. Of a source
            on a device a float32 array there. None: a new array.
        at : integers (len(ids),), optional
            The row of ``out`` for each id, all distinct; on a device they are not checked. None: ``out`` has one row
            for each id, in order.

        Returns
        -------
        array
            ``out``, or a new one: float32, C order, shape ``(len(ids), dim)``.

        Raises
        ------
        InputError, DTypeError
            If ``ids`` are no integers in one dimension, or out of range, or ``out`` does not fit; on every rank, if
            those of one do not.
        DataError
            If rows cannot be read, or have changed since they were.
        """
        try:
            checked = self._checked(ids, out, at)
        except Exception as error:
            self._fail(error)
            raise
        try:
            self._read(*checked)
        except IndexError:
            if self._checks_ids:
                check_ids("ids", checked[0], self.num_rows)
            raise
        rows: NDArray[np.float32] = checked[1]
        return rows

    @abstractmethod
    def _read(self, ids: NDArray[Any], out: Any, at: NDArray[np.int64] | None = None) -> None:
        """Write the rows of vertices to rows `at` of `out`, or to all in order; all three are checked.

        Parameters
        ----------
        ids : int32 or int64 array
            C order, in range, repeats allowed.
        out : array (places, dim)
            float32, or of `stored_dtype`, in C order.
        at : int64 array (len(ids),), optional
            All distinct.
        """

    def _checked(self, ids: Any, out: Any, at: Any) -> tuple[NDArray[Any], Any, NDArray[np.int64] | None]:
        """Arguments of `_read`, from those of `gather`."""
        if self._checks_ids:
            vertices = np.ascontiguousarray(as_id_vector("ids", ids))
        else:
            vertices = as_vertex_ids("ids", ids, self.num_rows)
        places = require_destination(out, at, len(vertices), self.dim, (np.dtype(np.float32), self.stored_dtype))
        return vertices, new_rows(len(vertices), self.dim) if out is None else out, places

    @property
    def _checks_ids(self) -> bool:
        """True where `_read` itself refuses ids out of range, by an IndexError; else they are checked before."""
        return False

    def _fail(self, error: Exception) -> None:
        """Raise an error of the arguments on all ranks that gather together, which are in `_read`."""
        with collective(self.comm, call="gather of features"):
            raise error

    # ---------------------------------------------------------------------------- abilities, each with a default

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of vertices and of features per vertex."""
        return self.num_rows, self.dim

    @property
    def stored_row_bytes(self) -> int:
        """Bytes of a row of `stored_dtype`."""
        return self.stored_dtype.itemsize * self.dim

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes for rows and what leads to them; 0 where it does not say."""
        return 0

    @property
    def comm(self) -> Communicator:
        """The ranks that gather together; one that is alone by default."""
        return _ALONE

    @property
    def rows_in_memory(self) -> RowReader | None:
        """The reader of all rows, for a cache that reads its own in the same pass; None where there is no such way."""
        return None

    def block_vertices(self) -> NDArray[np.int64]:
        """Return the vertices whose rows are on this rank and not on others; none by default."""
        return np.empty(0, np.int64)

    def fingerprint(self) -> int | None:
        """Return a number that differs for other rows; None where they are not read for it."""
        return None

    def file_state(self) -> FileState | None:
        """Return a state of the file of the rows that changes when it is written to; None where there is none."""
        return None

    @property
    def looks_ahead(self) -> bool:
        """True where it does better with announced calls (`prefetch_hint`); False by default."""
        return False

    def prefetch_hint(self, batches: Iterable[ArrayLike] | None) -> None:
        """Announce what the next calls of `gather` will ask for, beyond what was announced before. Not collective.

        Calls that were not announced are served as well.

        Parameters
        ----------
        batches : iterable of integer arrays, or None
            The ids of each call, in order; they must not be changed until they are gathered. No batches: nothing more
            is known for now. None: what was announced and not yet gathered will not come.

        Raises
        ------
        InputError, DTypeError
            If one is no array of vertex ids.
        """
        calls = None
        if batches is not None:
            each = require_iterable("batches", batches, "ids of each call")
            calls = [self._hinted_ids(ids) for ids in each]
        if self.looks_ahead:
            self._hint(calls)

    def _hinted_ids(self, ids: Any) -> Any:
        """Check the ids of a call that is announced."""
        return as_vertex_ids("batches", ids, self.num_rows)

    def _hint(self, batches: list[Any] | None) -> None:  # noqa: B027
        """Take the checked ids of `prefetch_hint`; called where it `looks_ahead`."""

    def reset_counts(self) -> None:  # noqa: B027
        """Count from 0 again, where rows are counted."""

    def duplicate(self) -> Self:
        """Return these features over communicators of their own, for another thread; collective.

        These themselves where no ranks gather together.
        """
        return self

    def close(self) -> None:  # noqa: B027
        """Free what a duplicate holds, or files that are open; collective. Nothing by default."""


_CHUNK_BYTES = 16 << 20
"""Bytes of the rows that are read again at a time."""


class FileState(NamedTuple):
    """The state of a file, which is another one once the file was written to.

    Attributes
    ----------
    inode, size, modified : int
        As the system gives them; the time in nanoseconds.
    """

    inode: int
    size: int
    modified: int


def file_state(rows: Any) -> FileState | None:
    """Return the state of the file that an array, or the numbers of a SciPy sparse matrix, are a map of.

    None for what is in memory, and for a file that is no longer there: its map goes on to give what it had.

    Examples
    --------
    >>> file_state(np.zeros(3)) is None
    True
    """
    array = rows.data if sparse.issparse(rows) else rows
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return None if array is None or array.filename is None else state_of_path(array.filename)


def state_of_path(path: str | os.PathLike[str]) -> FileState | None:
    """Return the state of a file; None where there is none of that name.

    Examples
    --------
    >>> state_of_path("no such file") is None
    True
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileState(status.st_ino, status.st_size, status.st_mtime_ns)


class FileChangeGuard:
    """Rows that were read from a source, to be held against it when its file was written to.

    Where the source says the state of its file (``file_state()``) and that is another one, the rows are read again. It
    costs a look at the file's time and size where nothing was written.

    Parameters
    ----------
    source : FeatureSource
    kept : function
        Without arguments, to the vertices whose rows were read and these rows, of the source's own type: (vertices,)
        and (vertices, features).

    Examples
    --------
    >>> from spsample.features.memory import FeatureStore
    >>> store = FeatureStore(np.eye(3, dtype=np.float32))
    >>> FileChangeGuard(store, lambda: (np.arange(3), np.eye(3, dtype=np.float32))).check()
    """

    def __init__(self, source: FeatureSource, kept: Callable[[], tuple[NDArray[np.int64], NDArray[Any]]]) -> None:
        self._source, self._kept = source, kept
        self._state = source.file_state()

    def check(self) -> None:
        """Refuse a source whose rows are others now.

        Raises
        ------
        DataError
        """
        state = self._source.file_state()
        if state == self._state or state is None:
            return
        before = self._state
        is_cut = before is not None and state.inode == before.inode and state.size < before.size  # pages are gone
        if is_cut or not self._is_same():
            raise DataError(
                argument="source",
                given=f"{self._source!r}, whose file was written to: its rows have changed",
                expected="the rows that there were when they were cached",
                hint="Make the cache anew.",
            )
        self._state = state

    def _is_same(self) -> bool:
        vertices, rows = self._kept()
        step = max(1, _CHUNK_BYTES // max(1, rows[:1].nbytes))
        for first in range(0, len(rows), step):
            kept = rows[first : first + step]
            now = np.empty_like(kept)
            self._source.gather(vertices[first : first + step], now)
            if not np.array_equal(kept.view(np.uint8), now.view(np.uint8)):
                return False
        return True
