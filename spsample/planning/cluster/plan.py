"""`plan_cluster`: which replication and bulk size to take on a cluster, before a job is queued; memory of a rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from math import sqrt
from typing import Any

from spsample.common.checks import require_choice, require_int, require_type
from spsample.common.lazily import lazily
from spsample.common.units import format_bytes
from spsample.distributed.algorithms import ALGORITHMS
from spsample.distributed.grid import divisors
from spsample.errors import CapacityError
from spsample.planning.budget import largest_fitting
from spsample.planning.bulk_counts import BulkCounts, GraphProfile
from spsample.planning.bulk_plan import ORDER_BYTES, BulkPlan, feature_bytes_of, warm_up_divisor
from spsample.planning.cluster.counting import RankCounts
from spsample.planning.cluster.exchanges import Algorithm, ExchangeCost, GridShape, Network, Phase, WireWidths
from spsample.planning.cluster.pilot import GridPilot, Pilot
from spsample.planning.cluster.traffic import PhaseBytes, bulk_traffic, by_phase
from spsample.planning.loader_plan import FEATURE_BATCHES
from spsample.planning.scratch import host_scratch

COLUMN_BYTES = 12  # bytes of a column of a distribution of the whole graph


def memory_parts(
    profile: GraphProfile, counts: RankCounts, bulks: BulkPlan, traffic: Iterable[ExchangeCost], *, hub_budget: int = 0
) -> dict[str, int]:
    """Bytes of the rank that needs most, by what they are for.

    Parameters
    ----------
    profile : GraphProfile
    counts : RankCounts
        Counts of a bulk.
    bulks : BulkPlan
        The plan of one rank (`bulk_plan_of_rank`).
    traffic : iterable of ExchangeCost
        Exchanges of the bulk.
    hub_budget : int
        Bytes of hub rows that every rank holds.

    Returns
    -------
    dict
        "block row", "hub rows", "features", "bulks", "exchanges".
    """
    return {
        "block row": block_row_bytes(profile, counts),
        "hub rows": 0 if counts.shape.num_blocks == 1 else min(hub_budget, csr_bytes(profile, profile.num_edges, 0)),
        "features": feature_block_bytes(profile, counts.shape),
        "bulks": bulks.peak(int(counts.batches.max())),
        "exchanges": buffer_bytes(traffic, int(counts.batches.max())),
    }


def csr_bytes(profile: GraphProfile, entries: float, rows: float) -> int:
    """Entries, and where rows begin."""
    return round(entries * profile.entry_bytes + 8 * (rows + 1))


def block_row_bytes(profile: GraphProfile, counts: RankCounts) -> int:
    """The largest block row, and where each block row begins."""
    pairs = zip(counts.block_entries.tolist(), counts.block_rows.tolist(), strict=True)
    return max(csr_bytes(profile, entries, rows) for entries, rows in pairs) + 8 * (counts.shape.num_blocks + 1)


def feature_block_bytes(profile: GraphProfile, shape: GridShape) -> int:
    """Features of n over p/c vertices."""
    return -(-profile.num_nodes // shape.num_blocks) * profile.feature_bytes


def buffer_bytes(traffic: Iterable[ExchangeCost], steps: int) -> int:
    """Bytes that a rank sends and receives in the largest exchange; features are exchanged a step at a time."""
    sizes = [0.0]
    for exchange in traffic:
        once = float((exchange.sent + exchange.received).max())
        sizes.append(once / max(steps, 1) if exchange.phase in ("features", "gradients") else once)
    return round(max(sizes))


_LARGEST = ("largest_rows", "largest_sources")


def bulk_plan_of_rank(pilot: Pilot, shape: GridShape, *, prefetch: int, threads: int) -> BulkPlan:
    """The plan of one rank's bulks, from the pilots; its budget is not used.

    Parameters
    ----------
    pilot : Pilot
    shape : GridShape
    prefetch : int
        Bulks that a loader samples ahead.
    threads : int
        Threads of a rank.
    """
    counts, scale = BulkCounts.of(pilot.bulk), pilot.scale  # to the graph and the sampler that are planned for
    layers = tuple(
        replace(layer.scaled(scale), **{name: round(getattr(layer, name) * scale) for name in _LARGEST})
        for layer in counts.layers
    )
    counts = replace(counts, sampler=pilot.sampler, layers=layers, spread=counts.spread / sqrt(scale))
    batches = -(-pilot.num_batches // shape.ranks)
    profile = pilot.profile
    other_seeds = (pilot.num_batches - batches) * pilot.batch_size
    of_graph = pilot.sampler.draw_law(profile.weighting) == "graph"
    distribution = COLUMN_BYTES * profile.num_nodes // shape.num_blocks if of_graph else 0
    return BulkPlan(
        memory_budget=1,
        num_batches=batches,
        batch_size=pilot.batch_size,
        counts=counts,
        held=max(prefetch, 1),
        warm_up=warm_up_divisor(prefetch),
        feature_bytes=feature_bytes_of(FEATURE_BATCHES, profile.feature_bytes, counts),
        kept_bytes=distribution + ORDER_BYTES * max(other_seeds, 0),
        pilot_seconds=pilot.seconds,
        id_bytes=profile.id_bytes,
        scratch=partial(host_scratch, profile, threads),
    )


MAX_CELLS = 1 << 22  # ranks times block rows of a plan
NEARLY = 1.05  # factor of the least time up to which a smaller bulk is preferred


@dataclass(frozen=True)
class Cluster:
    """Ranks, what connects them, and how they sample.

    Attributes
    ----------
    ranks : int
        p.
    memory_per_rank : int
        Bytes.
    network : Network
    ranks_per_node : int
    threads : int
        Threads of a rank.
    algorithm : {"column", "stages", "oblivious"}
    hub_budget : int
        Bytes of hub rows that every rank holds.
    model_bytes : int
        Bytes of the gradients.
    edge_ids : bool
        Whether edge ids are asked for.
    prefetch : int
        Bulks sampled ahead.
    bulk_size : int, optional
        k; None: the plan finds it. At most an epoch.

    Raises
    ------
    InputError, DTypeError
        If one of them is out of range.
    """

    ranks: int
    memory_per_rank: int
    network: Network
    ranks_per_node: int
    threads: int = 8
    algorithm: Algorithm = "column"
    hub_budget: int = 0
    model_bytes: int = 0
    edge_ids: bool = False
    prefetch: int = 1
    bulk_size: int | None = None

    def __post_init__(self) -> None:
        counts = ["ranks", "memory_per_rank", "ranks_per_node", "threads"]
        for name in counts if self.bulk_size is None else [*counts, "bulk_size"]:
            object.__setattr__(self, name, require_int(name, getattr(self, name), minimum=1))
        require_type("network", self.network, Network, "a Network, as network_named makes")
        require_choice("algorithm", self.algorithm, tuple(ALGORITHMS))


@dataclass(frozen=True)
class PhasePlan(PhaseBytes):
    """A phase of an epoch: bytes and messages of a rank, and seconds."""

    phase: Phase
    seconds: float


@dataclass(frozen=True)
class GridPlan:
    """Memory, bytes and time with one replication.

    Attributes
    ----------
    shape : GridShape
    largest_bulk_size : int
        The largest multiple of p that fits, or a whole epoch; 0 where none does.
    bulk_size : int
        The k to take, or that was asked for; a batch per rank where none fits.
    memory : dict
        Bytes of a rank with it, by what they are for.
    phases : tuple of PhasePlan
        Phases of an epoch of such bulks; empty where none fits.
    refusal : str
        Why it does not fit; empty where it does.
    """

    shape: GridShape
    largest_bulk_size: int
    bulk_size: int
    memory: dict[str, int]
    phases: tuple[PhasePlan, ...]
    refusal: str

    @property
    def fits(self) -> bool:
        """True where a bulk of a batch per rank fits, or the one that was asked for."""
        return not self.refusal

    @property
    def seconds(self) -> float:
        """Communication of an epoch."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def memory_bytes(self) -> int:
        """Bytes of a rank."""
        return sum(self.memory.values())


@dataclass(frozen=True)
class ClusterPlan:
    """Plans for each replication, ascending. `left_out` are those of more than 2^22 ranks times block rows."""

    cluster: Cluster
    grids: tuple[GridPlan, ...]
    left_out: tuple[int, ...] = ()

    @property
    def recommended(self) -> GridPlan:
        """The least time of an epoch; of equal ones the least memory.

        Raises
        ------
        CapacityError
            If none fits.
        """
        fitting = [grid for grid in self.grids if grid.fits]
        if not fitting:
            least = min(self.grids, key=lambda grid: grid.memory_bytes)
            raise CapacityError(
                argument="memory_per_rank",
                given=format_bytes(self.cluster.memory_per_rank),
                expected=f"at least {format_bytes(least.memory_bytes)}, which c = {least.shape.replication} takes",
                hint="Use more ranks, smaller batches, fanouts or layer sizes, or features of fewer bytes.",
            )
        return min(fitting, key=lambda grid: (grid.seconds, grid.memory_bytes))


def plan_cluster(
    pilot: Pilot,
    cluster: Cluster,
    *,
    replication: int | None = None,
) -> ClusterPlan:
    """Memory, the largest bulk, bytes and time of an epoch for each replication.

    Of each c that fits, the bulk size is the given one, or else the smallest of the largest one and its halves whose
    epoch takes at most 5 % longer than with any of them.

    Parameters
    ----------
    pilot : Pilot
    cluster : Cluster
    replication : int, optional
        c; None: every divisor of p.

    Raises
    ------
    InputError
        If c does not divide p, or there is no such algorithm.
    CapacityError
        If there are more ranks and block rows than the plan can hold.

    Examples
    --------
    >>> import spsample as sp
    >>> from spsample.planning.cluster.exchanges import NETWORKS
    >>> from spsample.planning.cluster.pilot import sample_pilot
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> pilot = sample_pilot(graph, range(1024), sp.GraphSAGE([5, 5]), batch_size=32, feature_bytes=400)
    >>> plan = plan_cluster(pilot, Cluster(4, 10**9, NETWORKS["perlmutter"], ranks_per_node=4))
    >>> [grid.shape.replication for grid in plan.grids], plan.recommended.shape.replication
    ([1, 2, 4], 4)
    """
    factors = divisors(cluster.ranks) if replication is None else [replication]
    shapes = [GridShape(cluster.ranks, c) for c in factors]
    fitting = [shape for shape in shapes if shape.ranks * shape.num_blocks <= MAX_CELLS]
    if not fitting:
        raise CapacityError(
            argument="ranks",
            given=f"{cluster.ranks} with c = {shapes[-1].replication}",
            expected=f"p * p/c of at most {MAX_CELLS}",
            hint="Plan a larger replication.",
        )
    left_out = tuple(shape.replication for shape in shapes if shape not in fitting)
    grids = tuple(_Planned(pilot, cluster, shape).plan() for shape in fitting)
    return ClusterPlan(cluster, grids, left_out)


class _Planned:
    """The plan of one grid."""

    def __init__(self, pilot: Pilot, cluster: Cluster, shape: GridShape) -> None:
        self._pilot, self._cluster, self._shape = pilot, cluster, shape
        profile = pilot.profile
        self._wire = WireWidths.of(profile.id_bytes, profile.weight_bytes, profile.weighting, edge_ids=cluster.edge_ids)
        self._bulks: BulkPlan = bulk_plan_of_rank(pilot, shape, prefetch=cluster.prefetch, threads=cluster.threads)
        self._of_bulk = lru_cache(maxsize=None)(self._bulk)

    @lazily
    def _on_grid(self) -> GridPilot:
        with_stages = self._cluster.algorithm != "column"
        return GridPilot(self._pilot, self._shape, self._cluster.hub_budget, with_stages=with_stages)

    def _bulk(self, bulk_size: int) -> tuple[dict[str, int], dict[Phase, tuple[PhaseBytes, float]]]:
        """Memory of a rank, and of a bulk each phase's bytes and seconds."""
        profile, cluster = self._pilot.profile, self._cluster
        counts = self._on_grid.counts(bulk_size)
        traffic = bulk_traffic(
            counts,
            self._pilot.sampler,
            self._pilot.sampler.draw_law(profile.weighting),
            self._wire,
            self._cluster.algorithm,
            feature_bytes=profile.feature_bytes,
            model_bytes=self._cluster.model_bytes,
        )
        memory = memory_parts(profile, counts, self._bulks, traffic, hub_budget=self._cluster.hub_budget)
        if counts.batches.max() > 1:  # the last bulk of an epoch may have a batch per rank
            memory["exchanges"] = max(memory["exchanges"], self._of_bulk(self._size(1))[0]["exchanges"])
        phases: dict[Phase, tuple[PhaseBytes, float]] = {}
        for phase, moved in by_phase(traffic).items():
            exchanges = (exchange for exchange in traffic if exchange.phase == phase)
            each = (cluster.network.seconds(exchange, self._shape, cluster.ranks_per_node) for exchange in exchanges)
            phases[phase] = moved, sum(each)
        return memory, phases

    def plan(self) -> GridPlan:
        largest = largest_fitting(-(-self._pilot.num_batches // self._shape.ranks), self._fits)
        if self._cluster.bulk_size is not None:
            size = min(self._cluster.bulk_size, self._pilot.num_batches)
            return self._of_size(size, self._size(largest), f"a bulk of {size:,} takes")
        if largest == 0:
            return self._of_size(self._size(1), 0, "one batch per rank takes")
        halves = {max(largest >> i, 1) for i in range(largest.bit_length())}
        seconds = {m: sum(phase.seconds for phase in self._epoch(self._size(m))) for m in halves}
        best = min(m for m in halves if seconds[m] <= NEARLY * min(seconds.values()))
        return self._of_size(self._size(best), self._size(largest), "")

    def _of_size(self, size: int, largest: int, what: str) -> GridPlan:
        """The plan of bulks of `size`, where `largest` fit; refused where they do not, with `what` takes too much."""
        memory, _ = self._of_bulk(size)
        total = sum(memory.values())
        if total <= self._cluster.memory_per_rank:
            return GridPlan(self._shape, largest, size, memory, self._epoch(size), "")
        largest_parts = sorted(memory.items(), key=lambda part: -part[1])[:2]
        parts = ", ".join(f"{name} {format_bytes(part)}" for name, part in largest_parts)
        return GridPlan(self._shape, largest, size, memory, (), f"{what} {format_bytes(total)}: {parts}")

    def _size(self, per_rank: int) -> int:
        """Batches of a bulk of which a rank has `per_rank`; an epoch at most."""
        return min(per_rank * self._shape.ranks, self._pilot.num_batches)

    def _fits(self, per_rank: int) -> bool:
        """Return whether bulks of which a rank has `per_rank` batches fit in its memory."""
        memory, _ = self._of_bulk(self._size(per_rank))
        return sum(memory.values()) <= self._cluster.memory_per_rank

    def _epoch(self, bulk_size: int) -> tuple[PhasePlan, ...]:
        """All phases of an epoch: bulks of that size, and one of the batches that are left over."""
        whole, rest = divmod(self._pilot.num_batches, bulk_size)
        bulks = [(whole, self._of_bulk(bulk_size)[1]), *([(1, self._of_bulk(rest)[1])] if rest else [])]
        return tuple(
            PhasePlan(
                phase=phase,
                **{name: sum(times * vars(phases[phase][0])[name] for times, phases in bulks) for name in vars(moved)},
                seconds=sum(times * phases[phase][1] for times, phases in bulks),
            )
            for phase, (moved, _) in bulks[0][1].items()
        )


_NOT_WRITTEN = ("adapters", "ranks_per_node")


def as_dict(plan: ClusterPlan) -> dict[str, Any]:
    """For JSON: every number, by name."""
    try:
        recommended: dict[str, int] | None = {
            "replication": plan.recommended.shape.replication,
            "bulk_size": plan.recommended.bulk_size,
        }
    except CapacityError:
        recommended = None
    cluster, network = plan.cluster, plan.cluster.network
    return {
        "ranks": cluster.ranks,
        "memory_per_rank": cluster.memory_per_rank,
        "ranks_per_node": cluster.ranks_per_node,
        "network": {name: value for name, value in asdict(network).items() if name not in _NOT_WRITTEN},
        "algorithm": cluster.algorithm,
        "replicate_hubs": cluster.hub_budget,
        "model_bytes": cluster.model_bytes,
        "grids": [_grid_as_dict(grid) for grid in plan.grids],
        "left_out": list(plan.left_out),
        "recommended": recommended,
    }


def _grid_as_dict(grid: GridPlan) -> dict[str, Any]:
    return {
        "replication": grid.shape.replication,
        "blocks": grid.shape.num_blocks,
        "fits": grid.fits,
        "refusal": grid.refusal or None,
        "largest_bulk_size": grid.largest_bulk_size,
        "bulk_size": grid.bulk_size,
        "memory": {**grid.memory, "total": grid.memory_bytes},
        "seconds": grid.seconds,
        "phases": {
            phase.phase: {name: value for name, value in vars(phase).items() if name != "phase"}
            for phase in grid.phases
        },
    }
