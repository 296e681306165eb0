"""`CachedFeatures`: the rows that are wanted most, kept in memory in front of another feature source."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spsample.comm import collective
from spsample.common.checks import require_choice, require_type
from spsample.common.contents import contents_of
from spsample.common.locks import MendedInForks, was_held
from spsample.common.threads import compiled_core
from spsample.common.units import format_bytes
from spsample.features.gathering import SlotMap, slot_map_bytes
from spsample.features.keeper import (
    CacheCounts,
    KeptRows,
    RowKeeper,
    Targets,
    budget_bytes,
    left_beside_loader,
    read_misses,
    require_fingerprint,
    require_host_source,
    rows_beside,
    rows_within,
)
from spsample.features.lookahead import MAX_ITEMS, Lookahead, LookaheadRows, by_score, rows_ahead
from spsample.features.scores.registry import VertexScores, ranks_of
from spsample.features.source import FeatureSource, FileChangeGuard

_CLASSES = 256
"""Classes of rows by their scores, a byte a row: rows of the last classes are given up first for the map."""

_MIN_ROW_BYTES = 200
"""Size of a row beside which that byte is small; shorter rows stay."""

_TRIALS = (1, 4, 16)
"""Numbers of hints after which a trial is made."""

_USES, _BATCHES = 1 << 19, 8
"""The trial uses at most so many vertices, or batches if these have more."""

_GAIN, _SURE = 0.01, 2.0
"""Further hits that lookahead must bring: over uses, and over their square root, so that they are no chance."""

_SURELY_UNTOLD = 32
"""Calls after which no hint will come."""


class ChosenRows(MendedInForks):
    """Rows of the largest scores; they stay, or are kept by their next use, whichever has more hits in the same memory.

    At the first hints it is tried on what is known. Where to look ahead pays, the rows of the lowest scores are
    given up once, and the map lies where they were.

    Parameters
    ----------
    rows : KeptRows
        What is kept at first.
    order : uint8 array (rows,)
        The class of each row by its score: the higher, the sooner it is given up.
    """

    def __init__(self, rows: KeptRows, order: NDArray[np.uint8]) -> None:
        super().__init__()
        self.dtype, self.row_bytes = rows.dtype, rows.row_bytes
        self._rows: KeptRows | LookaheadRows = rows
        self._order: NDArray[np.uint8] | None = order  # None once the choice is made
        self._num_ahead = rows_ahead(rows.num_vertices, len(order), rows.row_bytes)
        self._known: list[NDArray[Any]] = []  # ids of announced calls that have not come
        self._hints = self._untold = 0
        self._moves = False

    may_look_ahead = True

    @staticmethod
    def map_bytes(num_rows: int, row_bytes: int) -> tuple[int, int]:
        """Bytes of the map while rows stay: for all vertices, and beside each row that is kept.

        Examples
        --------
        >>> ChosenRows.map_bytes(1_000_000, 400), ChosenRows.map_bytes(1_000_000, 8)
        ((250000, 1), (250000, 0))
        """
        return slot_map_bytes(num_rows), int(row_bytes >= _MIN_ROW_BYTES)

    @classmethod
    def of(cls, source: FeatureSource, vertices: NDArray[np.int64], scores: NDArray[Any]) -> KeptRows | ChosenRows:
        """Rows of vertices, ascending and distinct; they stay where the map leaves no room, or no core looks ahead."""
        rows, count = KeptRows(source, vertices), len(vertices)
        is_short = rows.row_bytes < _MIN_ROW_BYTES or source.num_rows > MAX_ITEMS
        if is_short or compiled_core() is None or rows_ahead(source.num_rows, count, rows.row_bytes) < 1:
            return rows
        order = np.empty(count, np.uint8)
        order[np.argsort(-scores[vertices].astype(np.float64), kind="stable")] = np.arange(count) * _CLASSES // count
        return cls(rows, order)

    @property
    def looks_ahead(self) -> bool:
        """True where what is known of the future changes which rows are kept, or may do so."""
        return self._order is not None or self._rows.looks_ahead

    @property
    def reader(self) -> Any:
        """Gives rows by place."""
        return self._rows.reader

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, of the map to them and of what decides, but for the batches that are known."""
        return self._rows.nbytes + (0 if self._order is None else self._order.nbytes)

    def hint(self, source: FeatureSource, batches: list[NDArray[Any]] | None) -> None:
        """Append the ids of the next calls, and choose where these are the first hints; None: forget them."""
        with self._lock():
            rows, order, announced = self._rows, self._order, batches
            if batches is None:
                self._known = []
            elif order is not None and isinstance(rows, KeptRows):
                self._known += [ids.astype(np.int32) for ids in batches]  # the caller may change them
                self._hints += bool(batches)
                if batches and self._hints in _TRIALS and self._choose(rows, order):
                    if source.looks_ahead:
                        source._hint(None)  # it was announced the misses of the rows that stay
                    announced, self._known = [ids.astype(np.int64) for ids in self._known], []
        self._rows.hint(source, announced)

    def _choose(self, rows: KeptRows, order: NDArray[np.uint8]) -> bool:
        """Look ahead from now on, where that pays; gives whether it does."""
        pays = _pays(self._known, rows.vertices(), order, self._num_ahead)
        if pays:
            self._moves = True
            self._rows = LookaheadRows.in_place_of(rows, order, self._num_ahead)
            self._moves, self._order = False, None
        elif self._hints == _TRIALS[-1]:
            self._order, self._known = None, []
        return pays

    def serve(self, source: FeatureSource, ids: NDArray[Any], out: NDArray[Any], at: Targets) -> int:
        """Write the rows of vertices to rows `at` of `out`, those that are not kept from the source; gives the hits.

        Collective where the source is.
        """
        if self._order is None:
            return self._rows.serve(source, ids, out, at)
        with self._lock():
            rows = self._rows
            if isinstance(rows, KeptRows):  # rows do not move
                self._count(ids)
                misses = rows.slots.gather(rows.reader, ids, out, at)
        if not isinstance(rows, KeptRows):
            return rows.serve(source, ids, out, at)
        read_misses(source, ids, misses, out, at)
        return len(ids) - len(misses)

    def vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows are kept now, ascending."""
        return self._rows.vertices()

    def kept(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The vertices whose rows are kept now, ascending, and these rows, in the same order."""
        return self._rows.kept()

    def recipe(self) -> tuple[Any, ...]:
        """From what rows are read again: the vertices, the classes of their rows, and a digest."""
        with self._lock():
            rows, order = self._rows, self._order
            if order is None or not isinstance(rows, KeptRows):
                return rows.recipe()
            return ChosenRows.reread, (rows.vertices(), order, contents_of(rows.reader.rows))

    @classmethod
    def reread(
        cls, source: FeatureSource, vertices: NDArray[np.int64], order: NDArray[np.uint8], fingerprint: int
    ) -> ChosenRows:
        """Read rows again.

        Raises
        ------
        DataError
            If they have changed.
        """
        rows = KeptRows(source, vertices)
        require_fingerprint(source, rows.reader.rows, fingerprint)
        return cls(rows, order)

    def _renew(self) -> None:
        """In a forked process nothing is known; where rows were on their way, none is kept."""
        self._known = []
        if was_held(self._changing) and self._moves and isinstance(self._rows, KeptRows):
            self._rows.slots, self._order = SlotMap(np.empty(0, np.int64), self._rows.num_vertices), None

    def _count(self, ids: NDArray[Any]) -> None:
        """A call came, the next one that is known or another."""
        if self._known and np.array_equal(self._known[0], ids):
            self._known.pop(0)
        self._untold += not self._hints
        if self._untold == _SURELY_UNTOLD:
            self._untold += 1
            warnings.warn(
                "replacement='lookahead' knows no next batches: rows stay as with replacement='static'. "
                "A BulkLoader that gathers from the cache tells it of them.",
                UserWarning,
                stacklevel=5,
            )


def _pays(
    batches: Sequence[NDArray[Any]], vertices: NDArray[np.int64], order: NDArray[np.uint8], capacity: int
) -> bool:
    """True where looking ahead with fewer rows brings more hits than rows of these vertices that stay.

    Hits are counted on the first half of the batches, so that as much is known beyond each of them.
    """
    ends = np.cumsum([len(ids) for ids in batches])
    count = max(int(np.searchsorted(ends, _USES)), _BATCHES)
    batches = list(batches[:count])
    seen, index = np.unique(np.concatenate(batches), return_inverse=True)
    tried = batches[: -(-count // 2)]
    uses = sum(map(len, tried))
    at = np.minimum(np.searchsorted(vertices, seen), len(vertices) - 1)
    stays = vertices[at] == seen
    static = int(np.count_nonzero(stays[index[:uses]]))
    is_first = np.zeros(len(vertices), np.bool_)
    is_first[by_score(order)[:capacity]] = True
    is_first = stays & is_first[at]
    places = min(capacity, len(seen))
    others = np.ones(places - np.count_nonzero(is_first))  # rows that no batch needs
    scores = np.concatenate([np.where(is_first, 2.0 + _CLASSES - order[at], 0.0), others])
    rule = Lookahead(scores, places)
    rule.announce(np.split(index, ends[: len(batches) - 1]))
    gained = sum(len(rule.step().hits) for _ in tried) - static
    return bool(gained > _GAIN * uses + _SURE * uses**0.5)


Rows = KeptRows | ChosenRows | LookaheadRows
"""Rows that a cache keeps."""

REPLACEMENTS: dict[str, type[KeptRows | ChosenRows]] = {"static": KeptRows, "lookahead": ChosenRows}


def replacement_named(name: Any) -> type[KeptRows | ChosenRows]:
    """The way of that name: the class of rows that a cache keeps at first.

    Raises
    ------
    InputError, DTypeError
        If there is none.

    Examples
    --------
    >>> replacement_named("static").map_bytes(1_000_000, 400)
    (250000, 0)
    """
    require_choice("replacement", name, tuple(REPLACEMENTS))
    return REPLACEMENTS[name]


class CachedFeatures(RowKeeper):
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
        batches are known (`prefetch_hint`, which a `BulkLoader` calls), and by score beyond. The budget counts what
        decides, too: 5 bytes a vertex and 24 a row. Where the first hints show that this brings no more hits, rows
        stay.
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
    >>> cached.counts.hits, cached.counts.misses
    (2, 1)
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
            require_type("source", source, FeatureSource, "a FeatureSource")
            require_host_source("source", source, "CachedFeatures")
            is_auto = isinstance(budget, str) and budget == "auto"
            use = "the budget 'auto' is what a loader of its batches leaves" if is_auto else ""
            scores = VertexScores("score", score, workload, source.num_rows, use=use)
            way = replacement_named(replacement)
            map_bytes = way.map_bytes(source.num_rows, source.stored_row_bytes)
            count = None if is_auto else rows_within(source, budget_bytes(budget), map_bytes)
        scores.require_same_kind(ranks, budget="auto" if is_auto else "bytes")
        if count is None:
            count = rows_beside(
                source, left_beside_loader(source, scores.batches, ranks, way.may_look_ahead), map_bytes
            )
        vertices, ranked = scores.choose(count, source)
        # Where all rows are kept, or none, there is nothing to replace.
        self._keep(source, KeptRows(source, vertices) if ranked is None else way.of(source, vertices, ranked))

    def _keep(self, source: FeatureSource, rows: Rows) -> None:
        self._begin(source, kinds=2)
        self._rows, self.stored_dtype = rows, rows.dtype
        self._guard = FileChangeGuard(source, rows.kept)

    @classmethod
    def _again(cls, source: FeatureSource, reread: Callable[..., Rows], *recipe: Any) -> CachedFeatures:
        """From a recipe; rows are read again, and must be those that there were."""
        made = cls.__new__(cls)
        made._keep(source, reread(source, *recipe))
        return made

    def _recipe(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        reread, recipe = self._rows.recipe()
        return CachedFeatures._again, (self.source, reread, *recipe)

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
    def counts(self) -> CacheCounts:
        """Hits and misses since the beginning, or the last `reset_counts`; those of duplicates too."""
        return CacheCounts(*self._counter.read(self._rows.row_bytes))

    @property
    def looks_ahead(self) -> bool:
        """True where the cache, or its source, does better with announced calls."""
        return self._rows.looks_ahead or super().looks_ahead

    def _hint(self, batches: list[Any] | None) -> None:
        self._rows.hint(self.source, batches)

    @property
    def _checks_ids(self) -> bool:
        is_checked_there = self.cached_rows > 0 or self.source._checks_ids
        return self.comm.size == 1 and not self._rows.looks_ahead and is_checked_there

    def _read(self, ids: NDArray[Any], out: Any, at: NDArray[np.int64] | None = None) -> None:
        if self.comm.size == 1:
            self._guard.check()
        hits = self._rows.serve(self.source, ids, out, at)
        self._counter.add(hits, len(ids) - hits)

    def __repr__(self) -> str:
        cached = f"{self.cached_rows:,} of {self.num_rows:,} rows in {format_bytes(self.nbytes)}"
        counts = self.counts
        seen = f", {counts.hit_share:.1%} of {counts.hits + counts.misses:,} hit" if counts.hits + counts.misses else ""
        return f"CachedFeatures({self.source!r}, {cached}{seen})"
