"""Rows kept near, in front of a source that has all: on the host with the map to them, counted, as many as fit."""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from spsample.comm import LocalCommunicator, collective
from spsample.comm.objects import all_gather_object
from spsample.common.checks import require_int
from spsample.common.contents import contents_of
from spsample.common.locks import renewed
from spsample.common.memory import available_memory
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import CapacityError, DataError, InputError
from spsample.features.gathering import SlotMap, row_reader, slot_map_bytes
from spsample.features.source import FeatureSource, FileState
from spsample.planning.budget import USE_BYTES, Buffers, FeaturesAhead
from spsample.planning.loader_plan import FEATURE_BATCHES, needed_by_loader
from spsample.sampling.arguments import check_arguments
from spsample.sampling.workload import Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from spsample.comm import Communicator


class CacheCounts(NamedTuple):
    """Rows that a source which keeps some near has gathered, by the place that they came from.

    Attributes
    ----------
    hits, misses : int
        Rows that were here, and rows from the source, repeats counted.
    hit_bytes, miss_bytes : int
        Their bytes, as they are kept.
    peer_hits, peer_bytes : int
        Rows from copies on other ranks, and their bytes: of `RoutedFeatures`.
    peer_cost : float
        What these cost by the formula of Song and Jiang, in rows from the source.

    Examples
    --------
    >>> counts = CacheCounts(hits=3, misses=1, hit_bytes=24, miss_bytes=8)
    >>> counts.rows, counts.hit_share, counts.cost
    (4, 0.75, 1.0)
    """

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    peer_hits: int = 0
    peer_bytes: int = 0
    peer_cost: float = 0.0

    def as_dict(self) -> dict[str, float]:
        """Return plain Python values, ready for JSON.

        Examples
        --------
        >>> list(CacheCounts(3, 1, 24, 8).as_dict().values())
        [3, 1, 24, 8, 0, 0, 0.0]
        """
        return self._asdict()

    def plus(self, other: CacheCounts, times: int = 1) -> CacheCounts:
        """Return the sum of these counts and `times` others.

        Examples
        --------
        >>> CacheCounts(3, 1).plus(CacheCounts(1, 1), -1)[:2]
        (2, 0)
        """
        sums: list[Any] = [mine + times * theirs for mine, theirs in zip(self, other, strict=True)]
        return CacheCounts(*sums)

    @property
    def rows(self) -> int:
        """All rows."""
        return self.hits + self.peer_hits + self.misses

    @property
    def cost(self) -> float:
        """Cost of all rows, in rows from the source."""
        return self.misses + self.peer_cost

    @property
    def hit_share(self) -> float:
        """Hits of all rows; 0 where there are none."""
        return self.hits / max(self.rows, 1)

    @property
    def peer_share(self) -> float:
        """Rows from other ranks' copies of all rows; 0 where there are none."""
        return self.peer_hits / max(self.rows, 1)


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
    >>> CacheCounts(*counter.read(row_bytes=8))[:4]
    (3, 1, 24, 8)
    """

    def __init__(self, kinds: int) -> None:
        self._adding = renewed(Lock())
        self._rows = [0] * kinds

    def add(self, *rows: int) -> None:
        """Count some rows from each place."""
        with self._adding:
            self._rows = [before + more for before, more in zip(self._rows, rows, strict=True)]

    def rows(self) -> list[int]:
        """Rows from each place."""
        with self._adding:
            return list(self._rows)

    def read(self, row_bytes: int) -> list[int]:
        """Rows from each place, then their bytes."""
        rows = self.rows()
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

CHUNK_BYTES = 64 << 20
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
    at_once = max(1, CHUNK_BYTES // max(1, source.stored_row_bytes))
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


RESERVE = 8
"""One part in so many of the memory is left for all else: models, gradients, other programs."""


def budget_bytes(budget: Any) -> int:
    """Return the budget of a cache in bytes; 0 is one, too.

    Raises
    ------
    InputError, DTypeError
        If it is no amount of memory.

    Examples
    --------
    >>> budget_bytes("2KiB"), budget_bytes(0)
    (2048, 0)
    """
    return require_bytes("budget", budget) if isinstance(budget, str) else require_int("budget", budget, minimum=0)


def rows_within(source: FeatureSource, budget: int, map_bytes: tuple[int, int]) -> int:
    """Return the number of rows that a cache of the source keeps within a budget in bytes, the map included.

    `map_bytes` are those of the map: for all vertices, and beside each row.

    Raises
    ------
    InputError
        If the budget is above 0, and less than one row and the map.
    CapacityError
        If so much memory is not available.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.features.memory import FeatureStore
    >>> rows_within(FeatureStore(np.ones((100, 4), np.float32)), 832, (32, 0))
    50
    """
    row_bytes, (of_all, of_each) = source.stored_row_bytes, map_bytes
    count = rows_beside(source, budget, map_bytes)
    if count < min(budget, source.num_rows, 1):
        expected = f"0, or at least one row of {row_bytes + of_each} bytes and {of_all} bytes for the map"
        raise InputError(argument="budget", given=format_bytes(budget), expected=expected)
    size = count * row_bytes
    require_available("budget", size, lambda: f"{format_bytes(budget)}, which {format_bytes(size)} of rows would take")
    return count


def require_available(argument: str, size: int, given: Callable[[], str]) -> None:
    """Refuse what takes more bytes than are available.

    Raises
    ------
    CapacityError
    """
    free = available_memory()
    if size > free:
        expected = f"at most the {format_bytes(free)} that are available"
        raise CapacityError(argument=argument, given=given(), expected=expected)


def rows_beside(source: FeatureSource, free: int, map_bytes: tuple[int, int]) -> int:
    """Return the number of rows that a cache of the source keeps in free memory, with the map; 0 where none fits.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.features.memory import FeatureStore
    >>> store = FeatureStore(np.ones((100, 4), np.float32))
    >>> rows_beside(store, 832, (32, 0)), rows_beside(store, 10, (32, 0))
    (50, 0)
    """
    row_bytes, (of_all, of_each) = source.stored_row_bytes, map_bytes
    if free > 0 and free >= source.num_rows * row_bytes:
        return source.num_rows
    return max(free - of_all, 0) // max(row_bytes + of_each, 1)


def left_beside_loader(
    source: FeatureSource, workload: Mapping[str, Any], ranks: Communicator, looks_ahead: bool
) -> int:
    """Return the bytes that a cache may take: those available, less what a loader needs that gathers from it.

    That is what `BulkLoader` itself plans for these batches, with its default arguments and the cache as its features.
    An eighth of what is available is left, too. Ranks of one machine share the rest. Collective on the ranks of the
    graph and of the source.

    Parameters
    ----------
    source : FeatureSource
    workload : dict
        Graph, seeds, sampler and batch_size.
    ranks : Communicator
        Of the graph or the source.
    looks_ahead : bool
        Whether the cache may look ahead.

    Raises
    ------
    InputError, DTypeError
        If the workload cannot be sampled.
    CapacityError
        If a few of the batches do not fit, without a cache.

    References
    ----------
    Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020: total less
    used less reserved memory, after a trial batch.

    Examples
    --------
    >>> import numpy as np
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:8,4").graph
    >>> batches = {"graph": graph, "seeds": range(64), "sampler": sp.GraphSAGE([3, 3]), "batch_size": 16}
    >>> store = sp.FeatureStore(np.zeros((256, 4), np.float32))
    >>> 0 < left_beside_loader(store, batches, graph.comm, looks_ahead=False) < available_memory()
    True
    """
    with collective(ranks, call="the checks of a trial batch"):
        seeds, batch_size = check_arguments(**workload)
    graph = workload["graph"]
    work = Workload(
        graph=graph.host if graph.is_on_device else graph,
        seeds=seeds,
        sampler=workload["sampler"],
        batch_size=batch_size,
        shuffle=True,
    )
    buffers = Buffers(
        prefetch=1,
        feature_batches=FEATURE_BATCHES,
        feature_bytes=4 * source.dim,
        ahead=FeaturesAhead(int(looks_ahead or source.looks_ahead), USE_BYTES),
    )
    with collective(LocalCommunicator() if graph.comm.size > 1 else ranks, call="the plan of a loader"):
        needed = needed_by_loader(work, buffers)
    with collective(ranks, call="the features of a trial batch"):
        source.gather(seeds[:batch_size])
        available = available_memory()
    everyone: list[tuple[str, int]] = all_gather_object(ranks, (socket.gethostname(), needed))
    here = [size for host, size in everyone if host == socket.gethostname()]
    return max(available * (RESERVE - 1) // RESERVE // len(here) - max(here), 0)
