"""Rows of a feature source that are kept in memory, with the map that leads to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from spsample.comm import collective
from spsample.comm.objects import comm_of
from spsample.common.contents import contents_of
from spsample.errors import DataError
from spsample.features.gathering import row_reader
from spsample.features.known_future import announce, forget
from spsample.features.places import Places, places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features.protocol import FeatureSource

__all__ = [
    "LINE_BYTES",
    "CachedRows",
    "Targets",
    "part",
    "parts_to_read",
    "require_contents",
    "row_bytes_of",
    "stored_dtype",
    "targets",
]

Targets = Union["NDArray[np.int64]", None]
"""Rows of a result for ids; None: one after the other."""

_CHUNK_BYTES = 64 << 20
"""Of rows that are read at a time."""

LINE_BYTES = 64
"""Of a line of the caches of processors."""


class CachedRows:
    """Rows of some vertices of a feature source, read from it; collective where that is.

    Parameters
    ----------
    source : FeatureSource
    vertices : int64 array
        Whose rows are kept: ascending and distinct. Ranks may keep other ones.

    Attributes
    ----------
    dtype : numpy.dtype
        That of their numbers.
    num_vertices : int
        Of the source.
    places : Places
        Which vertex has a row, and which row it is.
    reader : RowReader
        Gives rows by place.

    Examples
    --------
    >>> from spsample.features.memory import FeatureStore
    >>> kept = CachedRows(FeatureStore(np.arange(8, dtype=np.int8).reshape(4, 2)), np.array([1, 3]))
    >>> kept.reader.rows.tolist(), kept.nbytes
    ([[2, 3], [6, 7]], 12)
    """

    looks_ahead = False
    """Nothing that is known of the future changes which rows are kept."""

    def __init__(self, source: FeatureSource, vertices: NDArray[np.int64]) -> None:
        self.dtype, self.num_vertices = stored_dtype(source), source.num_rows
        with collective(comm_of(source), call="memory for cached features"):
            self.places = places_of(vertices, source.num_rows)
            rows = _aligned((len(vertices), source.dim), self.dtype)
        for one in parts_to_read(source, len(vertices)):
            source.gather(vertices[one], rows[one])
        self.reader = row_reader(rows)

    def serve(self, source: FeatureSource, ids: NDArray[Any], out: NDArray[Any], at: Targets) -> int:
        """Write the rows of vertices to rows `at` of `out`, those that are not kept from the source; gives the hits.

        Collective where the source is.
        """
        rest = getattr(source, "rows_in_memory", None)
        if rest is not None:
            return self.places.gather_all(self.reader, rest, ids, out, at)
        misses = self.places.gather(self.reader, ids, out, at)
        if len(misses) or comm_of(source).size > 1:
            source.gather(part(ids, misses), out, targets(at, misses, len(out)))
        return len(ids) - len(misses)

    def announce(self, source: FeatureSource, batches: Sequence[NDArray[Any]]) -> None:
        """Tell the source which of these vertices it will be asked for, where it wants to know."""
        announce(source, [part(ids, self.places.find(ids).misses) for ids in batches])

    def forget(self, source: FeatureSource) -> None:
        """Tell the source that what was announced will not come."""
        forget(source)

    def vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows are kept, ascending."""
        return self.places.vertices()

    def kept(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The vertices whose rows are kept, and these rows, in the same order."""
        return self.vertices(), self.reader.rows

    def recipe(self) -> tuple[Any, ...]:
        """From what rows are read again: the places, and a digest of the rows."""
        return CachedRows.reread, (self.places, contents_of(self.reader.rows))

    @classmethod
    def reread(cls, source: FeatureSource, places: Places, contents: int) -> CachedRows:
        """Read rows again.

        Raises
        ------
        DataError
            If they have changed.
        """
        rows = cls(source, places.vertices())
        require_contents(source, rows.reader.rows, contents)
        return rows

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(self.reader.dim * self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of the map to them."""
        return int(self.reader.rows.nbytes) + self.places.nbytes


def require_contents(source: FeatureSource, rows: NDArray[Any], contents: int) -> None:
    """Refuse rows that were read again and have changed.

    Raises
    ------
    DataError
        If their digest is another one.
    """
    if contents_of(rows) != contents:
        raise DataError(
            argument="source",
            given=f"{source!r}, whose rows have changed",
            expected="the rows that there were when the cache was pickled",
        )


def parts_to_read(source: FeatureSource, count: int) -> Iterator[slice]:
    """Which of `count` rows to read at a time, as many times on every rank of the source; collective there.

    Examples
    --------
    >>> from spsample.features.memory import FeatureStore
    >>> [len(np.arange(20)[one]) for one in parts_to_read(FeatureStore(np.ones((3, 2**23), np.int8)), 20)]
    [8, 8, 4]
    """
    at_once = max(1, _CHUNK_BYTES // max(1, row_bytes_of(source)))
    for first in range(0, _most_rows(comm_of(source), count), at_once):
        yield slice(first, first + at_once)


def part(ids: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
    """The ids at these positions, which are distinct and ascending."""
    return ids if len(positions) == len(ids) else ids[positions]


def targets(at: Targets, positions: NDArray[np.int64], num_rows: int) -> Targets:
    """The rows of the result, of `num_rows`, for the ids at these positions; None where they are all, in order."""
    if at is None:
        return None if len(positions) == num_rows else positions
    return part(at, positions)


def stored_dtype(source: FeatureSource) -> np.dtype[Any]:
    """In which a source keeps its rows and can give them; float32, where it does not say."""
    return np.dtype(getattr(source, "stored_dtype", np.float32))


def row_bytes_of(source: FeatureSource) -> int:
    """Bytes of a row as it is cached."""
    return stored_dtype(source).itemsize * source.dim


def _most_rows(comm: Communicator, number: int) -> int:
    """The largest number that a rank has; collective."""
    return number if comm.size == 1 else int(comm.all_reduce(np.array([number]), "max", phase="set-up")[0])


def _aligned(shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """New memory that begins with a line of the processor's caches, so that short rows do not lie on two."""
    size = shape[0] * shape[1] * dtype.itemsize
    memory = np.empty(size + LINE_BYTES, np.uint8)
    first = -memory.ctypes.data % LINE_BYTES
    return memory[first : first + size].view(dtype).reshape(shape)
