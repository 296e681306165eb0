"""Rows of a feature source that are kept in the memory of the host, with the map that leads to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from spsample.comm import collective
from spsample.common.contents import contents_of
from spsample.errors import DataError
from spsample.features.gathering import row_reader
from spsample.features.slot_map import SlotMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features.source import FeatureSource

__all__ = [
    "LINE_BYTES",
    "KeptRows",
    "Targets",
    "part",
    "parts_to_read",
    "read_misses",
    "require_fingerprint",
    "targets",
]

Targets = Union["NDArray[np.int64]", None]
"""Rows of a result for ids; None: one after the other."""

_CHUNK_BYTES = 64 << 20
"""Of rows that are read at a time."""

LINE_BYTES = 64
"""Of a line of the caches of processors."""


class KeptRows:
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
    slots : SlotMap
        The slot of each vertex that has a row.
    reader : RowReader
        Gives rows by slot.

    Examples
    --------
    >>> from spsample.features.memory import FeatureStore
    >>> kept = KeptRows(FeatureStore(np.arange(8, dtype=np.int8).reshape(4, 2)), np.array([1, 3]))
    >>> kept.reader.rows.tolist(), kept.nbytes
    ([[2, 3], [6, 7]], 12)
    """

    looks_ahead = False
    """Nothing that is known of the future changes which rows are kept."""

    def __init__(self, source: FeatureSource, vertices: NDArray[np.int64]) -> None:
        self.dtype, self.num_vertices = source.stored_dtype, source.num_rows
        with collective(source.comm, call="memory for cached features"):
            self.slots = SlotMap(vertices, source.num_rows)
            rows = _aligned((len(vertices), source.dim), self.dtype)
        for piece in parts_to_read(source, len(vertices)):
            source.gather(vertices[piece], rows[piece])
        self.reader = row_reader(rows)

    def serve(self, source: FeatureSource, ids: NDArray[Any], out: NDArray[Any], at: Targets) -> int:
        """Write the rows of vertices to rows `at` of `out`, those that are not kept from the source; gives the hits.

        Collective where the source is.
        """
        rest = source.rows_in_memory
        if rest is not None:
            return self.slots.gather_all(self.reader, rest, ids, out, at)
        misses = self.slots.gather(self.reader, ids, out, at)
        read_misses(source, ids, misses, out, at)
        return len(ids) - len(misses)

    def hint(self, source: FeatureSource, batches: list[NDArray[Any]] | None) -> None:
        """Tell the source which of these vertices it will be asked for; None: what it was told will not come."""
        if source.looks_ahead:
            source._hint(batches and [part(ids, self.slots.find(ids).misses) for ids in batches])

    def vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows are kept, ascending."""
        return self.slots.vertices()

    def kept(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The vertices whose rows are kept, and these rows, in the same order."""
        return self.vertices(), self.reader.rows

    def recipe(self) -> tuple[Any, ...]:
        """The function and the arguments, beside the source, that read the rows again: slots, and a fingerprint."""
        return KeptRows.reread, (self.slots, contents_of(self.reader.rows))

    @classmethod
    def reread(cls, source: FeatureSource, slots: SlotMap, fingerprint: int) -> KeptRows:
        """Read rows again.

        Raises
        ------
        DataError
            If they have changed.
        """
        rows = cls(source, slots.vertices())
        require_fingerprint(source, rows.reader.rows, fingerprint)
        return rows

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(self.reader.dim * self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of the map to them."""
        return int(self.reader.rows.nbytes) + self.slots.nbytes


def require_fingerprint(source: FeatureSource, rows: NDArray[Any], fingerprint: int) -> None:
    """Refuse rows that were read again and have changed.

    Raises
    ------
    DataError
        If their fingerprint is another one.
    """
    if contents_of(rows) != fingerprint:
        raise DataError(
            argument="source",
            given=f"{source!r}, whose rows have changed",
            expected="the rows that there were when the features were pickled",
        )


def parts_to_read(source: FeatureSource, count: int) -> Iterator[slice]:
    """Which of `count` rows to read at a time, as many times on every rank of the source; collective there.

    Examples
    --------
    >>> from spsample.features.memory import FeatureStore
    >>> [len(np.arange(20)[piece]) for piece in parts_to_read(FeatureStore(np.ones((3, 2**23), np.int8)), 20)]
    [8, 8, 4]
    """
    at_once = max(1, _CHUNK_BYTES // max(1, source.stored_row_bytes))
    for first in range(0, _most_rows(source.comm, count), at_once):
        yield slice(first, first + at_once)


def part(ids: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
    """The ids at these positions, which are distinct and ascending."""
    return ids if len(positions) == len(ids) else ids[positions]


def targets(at: Targets, positions: NDArray[np.int64], num_rows: int) -> Targets:
    """The rows of the result, of `num_rows`, for the ids at these positions; None where they are all, in order."""
    if at is None:
        return None if len(positions) == num_rows else positions
    return part(at, positions)


def read_misses(
    source: FeatureSource, ids: NDArray[Any], misses: NDArray[np.int64], out: NDArray[Any], at: Targets
) -> None:
    """Let the source write the rows of the ids at these positions; collective where it is, also without any."""
    if len(misses) or source.comm.size > 1:
        source._read(part(ids, misses), out, targets(at, misses, len(out)))


def _most_rows(comm: Communicator, number: int) -> int:
    """The largest number that a rank has; collective."""
    return number if comm.size == 1 else int(comm.all_reduce(np.array([number]), "max", phase="set-up")[0])


def _aligned(shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """New memory that begins with a line of the processor's caches, so that short rows do not lie on two."""
    size = shape[0] * shape[1] * dtype.itemsize
    memory = np.empty(size + LINE_BYTES, np.uint8)
    first = -memory.ctypes.data % LINE_BYTES
    return memory[first : first + size].view(dtype).reshape(shape)
