"""`RoutedFeatures`: copies of rows on ranks, each read from where it is nearest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.comm import Communicator, LocalCommunicator, collective
from spsample.comm.objects import require_same
from spsample.common.checks import require_type
from spsample.common.contents import contents_of
from spsample.common.units import format_bytes
from spsample.distributed.grid import ProcessGrid
from spsample.errors import InputError
from spsample.features.copies import CopyPlan, link_costs, nearest_holders, require_alpha
from spsample.features.gathering import slot_map_bytes
from spsample.features.keeper import (
    CacheCounts,
    KeptRows,
    RowKeeper,
    require_available,
    require_fingerprint,
    require_host_source,
)
from spsample.features.partitioned import RowExchange
from spsample.features.source import FeatureSource


class RoutedFeatures(RowKeeper):
    """Copies of rows on the ranks of a grid, in front of a feature source; the same rows to the bit.

    Rank i keeps the rows of device i of a plan. `gather` takes a row from this rank's own copy; else from the rank with
    a copy whose link costs least; else from the source. Of several links at the least cost one is chosen by the vertex
    and the rank that asks, so that the ranks share the work.

    Making one and gathering are collective.

    Parameters
    ----------
    source : FeatureSource
        What has all rows, in the memory of the host: features in block rows over the same ranks, or a source that each
        rank has for itself, such as a store. What lies in this rank's own block is never asked of another rank.
    plan : CopyPlan
        Whose copies; the same on every rank, a device for each.
    alpha : float or array_like (devices, devices)
        Cost of a row from another rank's copy over that of one from the source; entry (i, j): to rank i from rank j.
        Over links of 1 and more no row is read: the source is as near.
    grid : ProcessGrid
        The ranks.

    Raises
    ------
    InputError, DTypeError
        On every rank, if an argument cannot be used on one, or is another one there.
    CapacityError
        On every rank, if the rows of one do not fit in the memory that is available to it.

    Notes
    -----
    A gather takes one all-to-allv of vertices and one of rows, each distinct row once, and then what the source takes.
    Where links spare nothing it takes those of the source alone.

    `counts` says what came from here (a copy, or this rank's own block of the source), from other ranks' copies and
    from the source. Rows are kept and sent as the source stores them, where it says so (``stored_dtype``), else as
    float32. Each rank keeps a map of all vertices beside its rows: 2 bits and, up to 254 ranks, a byte for each.

    On a single rank it is pickled as its recipe, as `CachedFeatures` are.

    References
    ----------
    Song and Jiang, "Rethinking graph data placement for graph neural network training on multiple GPUs", ICS 2022.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> from spsample.features import CopyPlan, FeatureStore
    >>> store = FeatureStore(np.arange(8, dtype=np.float32).reshape(4, 2))
    >>> def body(comm):
    ...     plan = CopyPlan.of([[0, 1], [0, 2]], num_rows=4)
    ...     routed = RoutedFeatures(store, plan, 0.5, ProcessGrid(comm))
    ...     x = routed.gather([0, 2, 3])
    ...     return x.tolist(), routed.counts.hits, routed.counts.peer_hits, routed.counts.cost
    >>> run_threads(2, body)
    [([[0.0, 1.0], [4.0, 5.0], [6.0, 7.0]], 1, 1, 1.5), ([[0.0, 1.0], [4.0, 5.0], [6.0, 7.0]], 2, 0, 1.0)]
    """

    def __init__(self, source: FeatureSource, plan: CopyPlan, alpha: Any, grid: ProcessGrid) -> None:
        require_type("grid", grid, ProcessGrid, "an spsample ProcessGrid")
        rank = grid.comm.rank
        with collective(grid.comm, call="the checks of RoutedFeatures"):
            _require_arguments(source, plan, grid)
            links = link_costs(require_alpha(alpha, plan.devices), plan.devices)
            contents = [contents_of(vertices) for vertices in plan.vertices]
            rows_sent = (source.dim, source.stored_dtype.str)
        require_same(grid.comm, plan=contents, alpha=links, source=rows_sent)
        vertices, is_alone = np.sort(plan.vertices[rank]), source.comm.size == 1
        with collective(grid.comm, call="routes to copies"):
            holders = nearest_holders(plan, links, rank)  # a rank, or the number of ranks: the source
            here = source.block_vertices()  # rows that are never requested from another rank
            holders[here[holders[here] != rank]] = plan.devices + 1
            rows = KeptRows(source, vertices) if is_alone else None
        rows = KeptRows(source, vertices) if rows is None else rows  # collective: outside of `collective`
        self._begin(source, kinds=plan.devices + 2)  # by holder: a rank, the source, this rank's block of it
        self._rows, self.stored_dtype = rows, rows.dtype
        self._costs = np.append(links[rank], [1.0, 0.0])
        self._holders, self._exchange = holders, RowExchange(grid, "copies", source.num_rows)
        asks = bool(((holders != rank) & (holders < grid.comm.size)).any())
        self._has_peers = bool(grid.comm.all_reduce(np.array([asks], np.int64), "max", phase="set-up")[0])

    def _recipe(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return RoutedFeatures._again, (self.source, self._rows.vertices(), contents_of(self._rows.reader.rows))

    @classmethod
    def _again(cls, source: FeatureSource, vertices: NDArray[np.int64], fingerprint: int) -> RoutedFeatures:
        """On one rank, from a recipe; rows are read again, and must be those that there were."""
        made = cls(source, CopyPlan((vertices,), source.num_rows), 1.0, ProcessGrid(LocalCommunicator()))
        require_fingerprint(source, made._rows.reader.rows, fingerprint)
        return made

    @property
    def kept_rows(self) -> int:
        """Number of vertices whose rows this rank keeps."""
        return self._rows.reader.num_rows

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's copies and of the map; those of the source are its own."""
        return self._rows.nbytes + self._holders.nbytes

    @property
    def comm(self) -> Communicator:
        """All ranks of the grid."""
        return self._exchange.comm

    @property
    def cached_vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows this rank keeps, ascending."""
        return self._rows.vertices()

    @property
    def counts(self) -> CacheCounts:
        """Rows by the place that they came from, since the beginning or the last `reset_counts`; of duplicates too."""
        return self._by_place(np.array(self._counter.rows(), np.int64))

    def expected_counts(self, scores: NDArray[np.floating]) -> CacheCounts:
        """Return the counts that are expected where this rank needs each vertex as often as `scores` (n,) say.

        Examples
        --------
        >>> from spsample.features import FeatureStore
        >>> store, grid = FeatureStore(np.zeros((3, 1))), ProcessGrid(LocalCommunicator())
        >>> routed = RoutedFeatures(store, CopyPlan.of([[1]], num_rows=3), 0.5, grid)
        >>> routed.expected_counts(np.array([1.0, 4.0, 2.0]))[:2]
        (4.0, 3.0)
        """
        return self._by_place(np.bincount(self._holders, weights=scores, minlength=len(self._costs)))

    def _by_place(self, of_holders: NDArray[Any]) -> CacheCounts:
        """Put together rows, or numbers of rows that are expected, of each holder."""
        rank, ranks, row_bytes = self.comm.rank, self.comm.size, self._rows.row_bytes
        hits, misses = (of_holders[rank] + of_holders[ranks + 1]).item(), of_holders[ranks].item()
        peers = of_holders.sum().item() - hits - misses
        peer_cost = float(of_holders @ self._costs) - misses
        rows = hits, misses, hits * row_bytes, misses * row_bytes, peers, peers * row_bytes
        return CacheCounts(*rows, peer_cost)

    def _hint(self, batches: list[Any] | None) -> None:
        self.source._hint(batches and [ids[self._holders[ids] >= self.comm.size] for ids in batches])

    def _fail(self, error: Exception) -> None:
        with self._exchange.gathering():
            raise error

    def _read(self, ids: NDArray[Any], out: Any, at: NDArray[np.int64] | None = None) -> None:
        is_alone = self.source.comm.size == 1
        with self._exchange.gathering():
            to = np.arange(len(ids)) if at is None else at
            own, slots, others = self._rows.slots.find(ids)
            holders = self._holders[ids[others]]
            is_of_source = holders >= self.comm.size
            of_peers, of_source = others[~is_of_source], others[is_of_source]
            if self._has_peers:
                asked = ids[of_peers].astype(np.int64)
                # below ranks * rows, so below 2^63: else 2^20 ranks would each keep a map of 8 TiB, a byte for each row
                places = self._holders[asked].astype(np.int64) * self.num_rows + asked  # all vertices of each rank
                bounds = np.arange(self.comm.size + 1) * self.num_rows
                self._exchange.fetch(places, bounds, self._copies, (out, to[of_peers]))
            self._rows.reader.gather(slots, out, to[own])
            if is_alone:
                self.source._read(ids[of_source], out, to[of_source])
        if not is_alone:
            self.source._read(ids[of_source], out, to[of_source])
        counts = np.bincount(holders, minlength=len(self._costs))
        counts[self.comm.rank] += len(own)
        self._counter.add(*counts.tolist())

    def _copies(self, vertices: NDArray[Any]) -> NDArray[Any]:
        """Copies of rows, as this rank keeps them."""
        rows = np.empty((len(vertices), self.dim), self._rows.dtype)
        return self._rows.reader.gather(self._rows.slots.find(vertices).slots, rows)

    def duplicate(self) -> RoutedFeatures:
        """Return these features over duplicated communicators, for another thread; rows and counts are shared.

        Collective.
        """
        twin = super().duplicate()
        twin._exchange = self._exchange.duplicate()
        return twin

    def close(self) -> None:
        """Free what a duplicate holds; a source that is shared stays open. Collective."""
        self._exchange.close()
        super().close()

    def __repr__(self) -> str:
        kept = f"{self.kept_rows:,} of {self.num_rows:,} rows in {format_bytes(self.nbytes)}"
        seen = self.counts
        said = f", {seen.hit_share:.1%} here and {seen.peer_share:.1%} on peers of {seen.rows:,}" if seen.rows else ""
        return f"RoutedFeatures({self.source!r}, {kept} on rank {self.comm.rank} of {self.comm.size}{said})"


def _require_arguments(source: Any, plan: Any, grid: ProcessGrid) -> None:
    """Refuse copies that do not fit the source, the grid, or with the map to them in memory."""
    require_type("source", source, FeatureSource, "a FeatureSource")
    require_host_source("source", source, "RoutedFeatures")
    require_type("plan", plan, CopyPlan, "a CopyPlan")
    ranks, comm = source.comm, grid.comm
    if ranks.size > 1 and (ranks.size, ranks.rank) != (comm.size, comm.rank):
        given = f"features on rank {ranks.rank} of {ranks.size}"
        raise InputError(argument="source", given=given, expected=f"the rank of the grid: {comm.rank} of {comm.size}")
    if plan.devices != comm.size:
        given, expected = f"copies on {plan.devices} devices", f"one for each of {comm.size} ranks"
        raise InputError(argument="plan", given=given, expected=expected)
    if plan.num_rows != source.num_rows:
        given, expected = f"copies of {plan.num_rows} rows", f"of the {source.num_rows} rows of the source"
        raise InputError(argument="plan", given=given, expected=expected)
    rows = len(plan.vertices[comm.rank])
    route_bytes = np.min_scalar_type(plan.devices + 1).itemsize * plan.num_rows
    size = rows * source.stored_row_bytes + slot_map_bytes(plan.num_rows) + route_bytes
    given = f"{rows:,} rows on rank {comm.rank}, which take {format_bytes(size)} with the map"
    require_available("plan", size, lambda: given)
