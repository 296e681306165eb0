"""`CachedFeatures`: the rows that are wanted most, kept in memory in front of another feature source."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import collective
from spsample.common.checks import require_type
from spsample.common.units import format_bytes
from spsample.features.budget import budget_bytes, left_beside_loader, rows_beside, rows_within
from spsample.features.caching.replacement import Rows, replacement_named
from spsample.features.file_guard import FileChangeGuard
from spsample.features.keeper import CacheCounts, KeptRows, RowKeeper, require_host_source
from spsample.features.source import FeatureSource
from spsample.features.vertex_scores import VertexScores, ranks_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


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
            count = rows_beside(source, left_beside_loader(source, scores.batches, ranks, way), map_bytes)
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
