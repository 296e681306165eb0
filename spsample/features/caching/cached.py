"""`CachedFeatures`: the rows that are wanted most, kept in memory in front of another feature source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import collective
from spsample.comm.local import LocalCommunicator
from spsample.comm.objects import comm_of
from spsample.common.checks import require_type
from spsample.common.units import format_bytes
from spsample.errors import InputError
from spsample.features.cache_choice import budget_bytes, is_auto, rows_beside, rows_within
from spsample.features.caching.auto_budget import left_beside_loader
from spsample.features.caching.cached_rows import row_bytes_of
from spsample.features.caching.counts import CacheCounts, Counter
from spsample.features.caching.replacement import KeptRows, replacement_named
from spsample.features.gathering import new_rows, require_destination
from spsample.features.known_future import batches_of_ids, looks_ahead
from spsample.features.protocol import FeatureSource, close_duplicate, duplicate_of, source_contents
from spsample.features.score_order import highest
from spsample.features.wanted import Wanted, ranks_of
from spsample.features.watched import FileState, Watched, state_of
from spsample.store.validation import as_id_vector, check_ids

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from spsample.comm import Communicator

__all__ = ["CacheCounts", "CachedFeatures"]


class CachedFeatures:
    """The rows that are wanted most, kept in memory in front of any feature source; the same rows to the bit.

    Rows with the largest scores are read once, when the cache is made. `gather` takes them from memory, and the others
    from the source, each straight to its place in the result. Sources nest: that of a cache may be another one.

    Parameters
    ----------
    source : FeatureSource
        In the memory of the host. One that several ranks share is cached on each of them; making the cache and
        gathering are collective then. Ranks may have other budgets and scores.
    budget : int or str
        Bytes, or text such as ``"2GiB"``, for the cached rows and the map from vertices to them (2 bits a vertex, none
        where all rows are cached). 0: no row, the source alone. More than all rows: all of them. ``"auto"``: what a
        `BulkLoader` of these batches with default arguments leaves; that needs the workload, too.
    score : str or array (vertices,), optional
        How much each vertex is wanted: finite, at least 0. Of equal ones the first vertices are cached. Or the name of
        a score, which is computed for the batches that will be sampled.
    replacement : str, optional
        ``"static"`` (default): the same rows for all time. ``"lookahead"``: rows are kept by their next use, as far as
        batches are announced, and by score beyond; a `BulkLoader` announces them. The budget counts what decides, too:
        5 bytes a vertex and 24 a row. Where the first announcements show that this brings no more hits, rows stay.
    **workload
        With a name what `spsample.features.score` takes: ``graph``, ``seeds``, ``sampler``, ``batch_size``, and options
        of the score. A `BulkLoader` has attributes of these names. On a graph of several ranks making the cache is
        collective on them.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used, or the budget is above 0 and not enough for one row and the map. Without graph,
        seeds, sampler or batch size where the score is a name.
    CapacityError
        If the rows do not fit in the memory that is available.

    Notes
    -----
    Rows are kept as the source stores them, where it says so (``stored_dtype``), else as float32. Threads may gather
    side by side where those of the source may. It is pickled as its recipe, the source and which vertices are cached:
    rows are read again where it is opened, and refused if they have changed.

    References
    ----------
    Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020.

    Examples
    --------
    >>> from spsample.features import FeatureStore
    >>> store = FeatureStore(np.arange(8, dtype=np.float32).reshape(4, 2))
    >>> cached = CachedFeatures(store, budget=24, score=[0.1, 0.7, 0.2, 0.9])
    >>> cached.gather([3, 0, 1])
    array([[6., 7.],
           [0., 1.],
           [2., 3.]], dtype=float32)
    >>> cached.counts
    CacheCounts(hits=2, misses=1, hit_bytes=16, miss_bytes=8)
    """

    def __init__(
        self,
        source: FeatureSource,
        budget: int | str,
        score: ArrayLike | str = "posterior",
        *,
        replacement: str = "static",
        **workload: Any,
    ) -> None:
        ranks = ranks_of(source, workload)
        with collective(ranks, call="the checks of CachedFeatures"):
            _require_source(source)
            wanted = Wanted.of(score, workload, source.num_rows, budget=budget)
            way = replacement_named(replacement)
            map_bytes = way.map_bytes(source.num_rows, row_bytes_of(source))
            count = None if is_auto(budget) else rows_within(source, budget_bytes(budget), map_bytes)
        wanted.require_same_kind(ranks, budget)
        if count is None:
            count = rows_beside(source, left_beside_loader(source, wanted.batches, ranks, way), map_bytes)
        self._begin(source, way.keep(source, *_chosen(wanted, count, source)), Counter(kinds=2))

    def _begin(self, source: FeatureSource, rows: KeptRows, counter: Counter) -> None:
        self.source = source
        self._rows = rows
        self._counter = counter
        self._watched = Watched(source, rows.kept)

    @classmethod
    def _of(cls, source: FeatureSource, rows: KeptRows, counter: Counter) -> CachedFeatures:
        made = cls.__new__(cls)
        made._begin(source, rows, counter)
        return made

    def __copy__(self) -> CachedFeatures:
        return CachedFeatures._of(self.source, self._rows, self._counter)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.comm.size > 1:
            raise InputError(
                argument="features",
                given="CachedFeatures of a source on several ranks, to be pickled",
                expected="a source of one rank; else make the cache where it is used",
            )
        reread, recipe = self._rows.recipe()
        return _opened, (self.source, reread, *recipe)

    @property
    def num_rows(self) -> int:
        """Number of vertices."""
        return self.source.num_rows

    @property
    def dim(self) -> int:
        """Number of features per vertex."""
        return self.source.dim

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of vertices and of features per vertex."""
        return self.num_rows, self.dim

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """That of the numbers that are kept; rows go to an ``out`` of it as they are."""
        return self._rows.dtype

    @property
    def cached_rows(self) -> int:
        """Number of vertices whose rows are kept."""
        return self._rows.reader.num_rows

    @property
    def cached_vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows are kept, ascending."""
        return self._rows.vertices()

    @property
    def nbytes(self) -> int:
        """Bytes of the cached rows and of the map; those of the source are its own."""
        return self._rows.nbytes

    @property
    def comm(self) -> Communicator:
        """The ranks of the source; a local one where it has none."""
        return comm_of(self.source)

    @property
    def counts(self) -> CacheCounts:
        """Hits and misses since the beginning, or the last `reset_counts`; those of duplicates too."""
        return CacheCounts(*self._counter.read(self._rows.row_bytes))

    def reset_counts(self) -> None:
        """Count from 0 again."""
        self._counter.reset()

    def contents(self) -> int | None:
        """Return what the source does: a number that tells its rows from others, or None."""
        return source_contents(self.source)

    def file_state(self) -> FileState | None:
        """Return that of the source: what tells cheaply that its file was written to."""
        return state_of(self.source)

    def gather(self, ids: ArrayLike, out: Any = None, at: ArrayLike | None = None) -> NDArray[Any]:
        """Return the features of the vertices ``ids``, repeats allowed. Collective where that of the source is.

        Parameters
        ----------
        ids
            Vertex ids, integers, one dimension.
        out : array (places, dim), optional
            Where rows go, in C order: float32, or of `stored_dtype`, whose numbers are then not converted. None: a new
            array.
        at : integers (len(ids),), optional
            The row of ``out`` for each id, all distinct. None: ``out`` has one row for each id, in order.

        Returns
        -------
        ndarray
            ``out``, or a new array: float32, C order, shape ``(len(ids), dim)``.

        Raises
        ------
        InputError, DTypeError
            If ``ids`` are no integers in one dimension, or out of range, or ``out`` does not fit; of a source on
            several ranks on all of them.
        DataError
            If the file of the source was written to, and cached rows are others there now. Not on several ranks.
        """
        is_collective = self.comm.size > 1
        if not is_collective:
            self._watched.check()
        try:
            wanted = np.ascontiguousarray(as_id_vector("ids", ids))
            to = require_destination(out, at, len(wanted), self.dim, (np.dtype(np.float32), self.stored_dtype))
            rows = new_rows(len(wanted), self.dim) if out is None else out
            if is_collective or self._rows.looks_ahead:  # else rows are checked as they are read
                check_ids("ids", wanted, self.num_rows)
        except Exception:
            if is_collective:
                self.source.gather(ids, out, at)  # it refuses them too, on all ranks
            raise
        hits = self._rows.serve(self.source, wanted, rows, to)
        self._counter.add(hits, len(wanted) - hits)
        return rows

    @property
    def looks_ahead(self) -> bool:
        """Whether the cache, or its source, does better where it is told the next calls."""
        return self._rows.looks_ahead or looks_ahead(self.source)

    def announce(self, batches: Sequence[ArrayLike]) -> None:
        """Append the ids of the next calls of `gather`, one array a call, to what is known. Not collective.

        With ``replacement="lookahead"`` rows are kept by it. A source that looks ahead itself is told which of these
        ids it will be asked for. Calls that were not announced are served as well, and change nothing.

        Parameters
        ----------
        batches : sequence of int arrays
            None: nothing more is known for now.

        Raises
        ------
        InputError, DTypeError
            If one is no array of vertex ids.
        """
        self._rows.announce(self.source, batches_of_ids(batches, self.num_rows))

    def forget(self) -> None:
        """Forget what was announced and not yet gathered: it will not come. Not collective."""
        self._rows.forget(self.source)

    def duplicate(self) -> CachedFeatures:
        """Return these features over a duplicate of the source, for another thread; rows and counts are shared.

        Collective where the source is.
        """
        return CachedFeatures._of(duplicate_of(self.source), self._rows, self._counter)

    def close(self) -> None:
        """Free what a duplicate of the source holds. Collective where the source is.

        A source without ``duplicate`` is shared, and stays open.
        """
        close_duplicate(self.source)

    def __repr__(self) -> str:
        cached = f"{self.cached_rows:,} of {self.num_rows:,} rows in {format_bytes(self.nbytes)}"
        counts = self.counts
        seen = f", {counts.hit_share:.1%} of {counts.hits + counts.misses:,} hit" if counts.hits + counts.misses else ""
        return f"CachedFeatures({self.source!r}, {cached}{seen})"


def _opened(source: FeatureSource, reread: Callable[..., KeptRows], *recipe: Any) -> CachedFeatures:
    """From its recipe; rows are read again, and must be those that there were."""
    return CachedFeatures._of(source, reread(source, *recipe), Counter(kinds=2))


def _chosen(wanted: Wanted, count: int, source: FeatureSource) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
    """The vertices whose rows are cached, ascending, and the scores, where it is not all or none.

    Scores are computed only where a rank needs them.
    """
    is_needed = wanted.is_needed(0 < count < source.num_rows)
    own = LocalCommunicator() if ranks_of(None, wanted.workload).size > 1 else comm_of(source)
    with collective(own, call="the scores of CachedFeatures"):
        scores = wanted.scores() if is_needed else None
        if scores is None or count in (0, source.num_rows):
            return np.arange(count), None
        return highest(scores, count), scores


def _require_source(source: Any) -> None:
    require_type("source", source, FeatureSource, "a FeatureSource")
    if getattr(source, "on_device", False):
        raise InputError(
            argument="source",
            given=f"{type(source).__name__}, whose rows are on a device",
            expected="a source in the memory of the host",
            hint="The device goes in front: DeviceFeatures(CachedFeatures(source, ...), hot, ranking, ...).",
        )
