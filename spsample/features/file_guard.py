"""`FileChangeGuard`: rows that were read from a file are read again, and compared, where it was written to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from spsample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.features.source import FeatureSource

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
        if self._is_cut(state) or not self._is_same():
            raise DataError(
                argument="source",
                given=f"{self._source!r}, whose file was written to: its rows have changed",
                expected="the rows that there were when they were cached",
                hint="Make the cache anew.",
            )
        self._state = state

    def _is_cut(self, now: FileState) -> bool:
        """Pages of the map are gone, so that nothing can be read."""
        before = self._state
        return before is not None and now.inode == before.inode and now.size < before.size

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
