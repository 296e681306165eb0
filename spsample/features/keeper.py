"""Rows that are kept near, in front of a source that has all of them: on the host with the map to them, and counted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from spsample.comm import collective
from spsample.common.contents import contents_of
from spsample.common.locks import renewed
from spsample.errors import DataError, InputError
from spsample.features.file_guard import FileState
from spsample.features.gathering import row_reader
from spsample.features.slot_map import SlotMap, slot_map_bytes
from spsample.features.source import FeatureSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from typing_extensions import Self

    from spsample.comm import Communicator


class CacheCounts(NamedTuple):
    """Rows that a source which keeps some near has gathered, by the place that they came from.

    Attributes
    ----------
    hits, misses : int
        Rows that were kept, and rows from the source, repeats counted.
    hit_bytes, miss_bytes : int
        Their bytes, as they are kept.

    Examples
    --------
    >>> CacheCounts(hits=3, misses=1, hit_bytes=24, miss_bytes=8).hit_share
    0.75
    """

    hits: int
    misses: int
    hit_bytes: int
    miss_bytes: int

    def as_dict(self) -> dict[str, int]:
        """Return plain Python values, ready for JSON.

        Examples
        --------
        >>> CacheCounts(3, 1, 24, 8).as_dict()
        {'hits': 3, 'misses': 1, 'hit_bytes': 24, 'miss_bytes': 8}
        """
        return {name: int(value) for name, value in self._asdict().items()}

    @property
    def hit_share(self) -> float:
        """Hits of all rows; 0 where there are none."""
        return self.hits / max(self.hits + self.misses, 1)


class Counter:
    """Rows by the place that they came from, counted by several threads.

    Parameters
    ----------
    kinds : int
        Number of these places.

    Examples
    --------
    >>> counter = Counter(kinds=2)
    >>> counter.add(3, 1)
    >>> CacheCounts(*counter.read(row_bytes=8))
    CacheCounts(hits=3, misses=1, hit_bytes=24, miss_bytes=8)
    """

    def __init__(self, kinds: int) -> None:
        self._adding = renewed(Lock())
        self._rows = [0] * kinds

    def add(self, *rows: int) -> None:
        """Count some rows from each place."""
        with self._adding:
            self._rows = [before + more for before, more in zip(self._rows, rows, strict=True)]

    def read(self, row_bytes: int) -> list[int]:
        """Rows from each place, then their bytes."""
        with self._adding:
            rows = self._rows
        return [*rows, *(number * row_bytes for number in rows)]

    def reset(self) -> None:
        """Begin at 0 again."""
        with self._adding:
            self._rows = [0] * len(self._rows)


class RowKeeper(FeatureSource):
    """Rows of some vertices, kept near, in front of a source that has all of them: its fallback.

    A class derived from it decides which rows these are, and where they lie. It writes rows in ``_read``, and returns
    from `_recipe` what it is made from again in another process. All else is that of the fallback.

    Attributes
    ----------
    source : FeatureSource
        The fallback.
    """

    source: Any

    def _begin(self, source: FeatureSource, kinds: int) -> None:
        """Hold a fallback, and count rows by the places that they come from, `kinds` of them."""
        self.source, self._counter, self._holds_duplicate = source, Counter(kinds), False
        self.num_rows, self.dim = source.num_rows, source.dim

    @abstractmethod
    def _recipe(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A function that makes these features again, and its arguments."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self.comm.size > 1:
            raise InputError(
                argument="features",
                given=f"{type(self).__name__} on several ranks, to be pickled",
                expected="features of one rank; else make them where they are used",
            )
        return self._recipe()

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    @property
    def comm(self) -> Communicator:
        """The ranks of the source."""
        return self.source.comm  # type: ignore[no-any-return]

    def reset_counts(self) -> None:
        """Count from 0 again."""
        self._counter.reset()

    def fingerprint(self) -> int | None:
        """Return the fingerprint of the source's rows, or None."""
        return self.source.fingerprint()  # type: ignore[no-any-return]

    def file_state(self) -> FileState | None:
        """Return the state of the source's file, which changes when it is written to; or None."""
        return self.source.file_state()  # type: ignore[no-any-return]

    @property
    def looks_ahead(self) -> bool:
        """True where the source does better with announced calls."""
        return self.source.looks_ahead  # type: ignore[no-any-return]

    def _fail(self, error: Exception) -> None:
        self.source._fail(error)

    def duplicate(self) -> Self:
        """Return these features over a duplicate of the source, for another thread; rows and counts are shared.

        Collective where the source is.
        """
        twin = copy(self)
        twin.source = self.source.duplicate()
        twin._holds_duplicate = twin.source is not self.source
        return twin

    def close(self) -> None:
        """Free what a duplicate of the source holds; a source that is shared stays open. Collective where it is."""
        if self._holds_duplicate:
            self.source.close()


def require_host_source(argument: str, source: FeatureSource, keeper: str) -> None:
    """Refuse a source whose rows come out on a device.

    Raises
    ------
    InputError
    """
    if source.device is not None:
        raise InputError(
            argument=argument,
            given=f"{type(source).__name__}, whose rows are on a device",
            expected="a source in the memory of the host",
            hint=f"The device goes in front: DeviceFeatures({keeper}(source, ...), hot, ranking, ...).",
        )


Targets = Union["NDArray[np.int64]", None]
"""Rows of a result for ids; None: one after the other."""

_CHUNK_BYTES = 64 << 20
"""Bytes of the rows that are read at a time."""

LINE_BYTES = 64
"""Bytes of a line of the caches of processors."""


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
        The type of their numbers.
    num_vertices, row_bytes : int
        Vertices of the source, and bytes of a row.
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

    looks_ahead = may_look_ahead = False
    """Nothing that is known of the future changes which rows are kept."""

    @staticmethod
    def map_bytes(num_rows: int, row_bytes: int) -> tuple[int, int]:
        """Bytes of the map: for all vertices, and beside each row of `row_bytes` that is kept."""
        return slot_map_bytes(num_rows), 0

    @classmethod
    def of(cls, source: FeatureSource, vertices: NDArray[np.int64], scores: NDArray[Any]) -> KeptRows:
        """Rows of vertices, whatever their scores."""
        return cls(source, vertices)

    def __init__(self, source: FeatureSource, vertices: NDArray[np.int64]) -> None:
        self.dtype, self.num_vertices, self.row_bytes = source.stored_dtype, source.num_rows, source.stored_row_bytes
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
        """Announce to the source which of these vertices it will be asked for; None: earlier announcements are void."""
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
    """Yield the parts of `count` rows to read, as many parts on every rank of the source; collective there.

    Examples
    --------
    >>> from spsample.features.memory import FeatureStore
    >>> [len(np.arange(20)[piece]) for piece in parts_to_read(FeatureStore(np.ones((3, 2**23), np.int8)), 20)]
    [8, 8, 4]
    """
    at_once = max(1, _CHUNK_BYTES // max(1, source.stored_row_bytes))
    if source.comm.size > 1:
        count = int(source.comm.all_reduce(np.array([count]), "max", phase="set-up")[0])
    for first in range(0, count, at_once):
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


def _aligned(shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """New memory that begins with a line of the processor's caches, so that short rows do not lie on two."""
    size = shape[0] * shape[1] * dtype.itemsize
    memory = np.empty(size + LINE_BYTES, np.uint8)
    first = -memory.ctypes.data % LINE_BYTES
    return memory[first : first + size].view(dtype).reshape(shape)
