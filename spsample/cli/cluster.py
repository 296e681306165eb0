"""`spsample plan --ranks P`: what a job takes on a cluster, for each replication."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, cast

from spsample.cli.screen import bytes_column, print_line, print_sentence, print_table, unit_for
from spsample.common.options import Option
from spsample.common.units import count, format_bytes
from spsample.errors import InputError
from spsample.settings.ranks import ALGORITHM, PANEL, REPLICATION, ReplicateHubs

if TYPE_CHECKING:
    from spsample.cli.sampling import SamplingOptions
    from spsample.planning.cluster import ClusterPlan, GridPlan
    from spsample.planning.cluster.pilot import Pilot
    from spsample.sampling import Sampler

_SIZE_PANEL = "A graph that is not here"
KINDS = ("rmat", "planted")


@dataclass(frozen=True)
class ClusterOptions:
    """Options of the cluster and the job."""

    ranks: Annotated[
        int | None,
        Option("Plan for this number of ranks, p, instead of this machine.", PANEL, common=True),
    ] = None
    replication: Annotated[str, REPLICATION] = "all"
    memory_per_rank: Annotated[str, Option("Memory of a GPU or a process.", PANEL, common=True)] = "40GB"
    network: Annotated[
        str, Option("What connects the ranks.", PANEL, choices=("perlmutter", "ethernet", "shared-memory"), common=True)
    ] = "perlmutter"
    alpha: Annotated[str | None, Option("Another latency between nodes, as in 2us.", PANEL)] = None
    bandwidth: Annotated[
        str | None, Option("Another bandwidth of a network adapter, as in 25GB/s or 100Gbit/s.", PANEL)
    ] = None
    duplex: Annotated[
        float, Option("Share of the bandwidth that is left each way where all ranks send and receive.", PANEL)
    ] = 1.0
    ranks_per_node: Annotated[int | None, Option("Ranks on a node.", PANEL, unset="what is usual in the network")] = (
        None
    )
    threads_per_rank: Annotated[int, Option("Threads of a rank, each with scratch of its own.", PANEL)] = 8
    algorithm: Annotated[str, replace(ALGORITHM, choices=("column", "stages", "oblivious"))] = "column"
    replicate_hubs: ReplicateHubs = None
    model_size: Annotated[
        str | None, Option("Bytes of the gradients, as in 4MB; by default none are averaged.", PANEL, common=True)
    ] = None
    feature_bytes: Annotated[
        int | None,
        Option("Bytes of a vertex's features.", PANEL, unset="4 for each of the data set's features"),
    ] = None


@dataclass(frozen=True)
class GraphSize:
    """Options of a graph that is not here."""

    like: Annotated[str | None, Option("rmat or planted, instead of a data set.", _SIZE_PANEL, common=True)] = None
    num_nodes: Annotated[int | None, Option("Its vertices.", _SIZE_PANEL, common=True)] = None
    average_degree: Annotated[float | None, Option("Its edges over its vertices.", _SIZE_PANEL, common=True)] = None
    num_seeds: Annotated[int | None, Option("Seeds of an epoch.", _SIZE_PANEL, unset="all vertices", common=True)] = (
        None
    )

    def pilot(self, sampler: Sampler, batch_size: int, feature_bytes: int) -> Pilot:
        """Sampled on a smaller graph of the kind."""
        from spsample.data import smaller_graph
        from spsample.planning.cluster.pilot import scaled_pilot

        n, degree = self._require_sizes()
        return scaled_pilot(
            smaller_graph(self.like or "", n, degree),
            sampler,
            num_nodes=n,
            num_edges=round(n * degree),
            num_seeds=n if self.num_seeds is None else self.num_seeds,
            batch_size=batch_size,
            feature_bytes=feature_bytes,
        )

    def _require_sizes(self) -> tuple[int, float]:
        if self.like not in KINDS:
            raise InputError(argument="--like", given=repr(self.like), expected="one of " + ", ".join(KINDS))
        if self.num_nodes is None or self.average_degree is None:
            missing = "--num-nodes" if self.num_nodes is None else "--average-degree"
            raise InputError(argument=missing, given=f"none with --like {self.like}", expected="a number")
        if not (self.num_nodes >= 1 and 0 < self.average_degree < self.num_nodes):
            given = f"{self.average_degree:g} for {self.num_nodes} vertices"
            raise InputError(argument="--average-degree", given=given, expected="more than 0, less than the vertices")
        return self.num_nodes, self.average_degree


def cluster_facts(
    pilot: Pilot, options: ClusterOptions, source: str | None, *, ranks: int, edge_ids: bool, prefetch: int
) -> tuple[ClusterPlan, dict[str, Any]]:
    """The plan, and the same for JSON."""
    from spsample.common.checks import require_int
    from spsample.common.units import require_bytes
    from spsample.planning.cluster import Cluster, as_dict, plan_cluster
    from spsample.planning.cluster.exchanges import network_named, require_ranks_per_node

    network = network_named(options.network, options.alpha, options.bandwidth, options.duplex)
    cluster = Cluster(
        ranks=ranks,
        memory_per_rank=require_bytes("memory_per_rank", options.memory_per_rank),
        network=network,
        ranks_per_node=require_ranks_per_node(network, options.ranks_per_node),
        threads=require_int("threads_per_rank", options.threads_per_rank, minimum=1),
        algorithm=cast("Any", options.algorithm),
        hub_budget=_bytes("replicate_hubs", options.replicate_hubs),
        model_bytes=_bytes("model_size", options.model_size),
        edge_ids=edge_ids,
        prefetch=prefetch,
    )
    replication = _replication(options.replication)
    plan = plan_cluster(pilot, cluster, replication=replication)
    profile = pilot.profile
    facts = {
        "source": source,
        "sampler": repr(pilot.sampler),
        "num_nodes": profile.num_nodes,
        "num_edges": profile.num_edges,
        "feature_bytes": profile.feature_bytes,
        "batch_size": pilot.batch_size,
        "num_batches": pilot.num_batches,
        "pilot_batches": len(pilot.bulk),
        "pilot_seconds": pilot.seconds,
        "pilot_scale": pilot.scale,
        **as_dict(plan),
    }
    return plan, facts


def train_line(
    plan: ClusterPlan, options: ClusterOptions, sampling: SamplingOptions, source: str, *, prefetch: int
) -> str | None:
    """The command that trains as was planned; None where nothing fits, or the algorithm is none to train with."""
    if options.algorithm == "oblivious" or not any(grid.fits for grid in plan.grids):
        return None
    best, ranks = plan.recommended, plan.cluster.ranks
    nodes = -(-ranks // plan.cluster.ranks_per_node)
    sizes = "fanouts" if sampling.sampler == "graphsage" else "layer_sizes"
    chosen = {
        "sampler": sampling.sampler,
        sizes: ",".join(map(str, getattr(sampling, sizes))),
        "batch_size": sampling.batch_size,
        "bulk_size": best.bulk_size,
        "prefetch": prefetch,
        "replication": best.shape.replication,
        "algorithm": options.algorithm,
        "replicate_hubs": options.replicate_hubs,
    }
    usual = {"sampler": "graphsage", "prefetch": 1, "replication": 1, "replicate_hubs": None}
    words = [(f"--{name.replace('_', '-')}", str(value)) for name, value in chosen.items() if value != usual.get(name)]
    start = ["spsample", "launch", "-n", str(ranks)]
    if nodes > 1:
        start = ["sbatch", "-N", str(nodes), "-n", str(ranks), "scripts/slurm/run.sh", "spsample"]
    return f"{shlex.join([*start, 'train', source])} \\\n    {shlex.join(chain(*words))}"


def _bytes(name: str, text: str | None) -> int:
    """The bytes that a text stands for; 0 where there is none."""
    from spsample.common.units import require_bytes

    return 0 if text is None else require_bytes(name, text)


def _replication(text: str) -> int | None:
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(argument="replication", given=repr(text), expected="a divisor of the ranks, or all") from None


def show_cluster(plan: ClusterPlan, facts: dict[str, Any]) -> None:
    """Print the plan: a line per replication, memory, phases of those that fit, and what to take."""
    for line in _heading(plan, facts):
        print_line(line)
    print_line("")
    print_sentence("For each replication c: the memory of a rank, batches in a bulk, communication of an epoch.")
    _show_grids(plan)
    for grid in plan.grids:
        if not grid.fits:
            print_sentence(f"c = {grid.shape.replication} does not fit: {grid.refusal}")
    if plan.left_out:
        print_sentence(f"not planned, too large a table: c = {', '.join(map(str, plan.left_out))}")
    if plan.left_out or not all(grid.fits for grid in plan.grids):
        print_line("")
    _show_memory(plan)
    if any(grid.phases for grid in plan.grids):
        _show_phases(plan)
    best = plan.recommended  # raises where none fits, which is the last word then
    print_line(
        f"take c = {best.shape.replication} and bulks of {count(best.bulk_size, 'minibatch', 'minibatches')}: "
        f"{_seconds(best.seconds)} of communication an epoch"
    )
    if facts["train"] is not None:
        print_line(facts["train"])


def _heading(plan: ClusterPlan, facts: dict[str, Any]) -> list[str]:
    cluster = plan.cluster
    scaled = f", each standing for 1/{facts['pilot_scale']:.0f} of one" if facts["pilot_scale"] != 1 else ""
    batches = count(facts["num_batches"], "minibatch", "minibatches")
    pilots = count(facts["pilot_batches"], "pilot batch", "pilot batches")
    nodes = count(-(-cluster.ranks // cluster.ranks_per_node), "node", "nodes")
    return [
        f"{facts['source']}: {facts['num_nodes']:,} vertices, {facts['num_edges']:,} edges, "
        f"{facts['feature_bytes']:,} bytes of features per vertex",
        f"{batches} of {facts['batch_size']:,} seeds an epoch, {facts['sampler']}",
        f"{count(cluster.ranks, 'rank', 'ranks')} of {format_bytes(cluster.memory_per_rank)} on {nodes}, "
        f"network {cluster.network.name}, algorithm {plan.cluster.algorithm}",
        f"predicted from {pilots}{scaled}; times are those of communication alone",
    ]


def _show_grids(plan: ClusterPlan) -> None:
    unit = unit_for(grid.memory_bytes for grid in plan.grids)
    rows = []
    sizes = bytes_column([grid.memory_bytes for grid in plan.grids], unit)
    for grid, size in zip(plan.grids, sizes, strict=True):
        fitting = [f"{grid.bulk_size:,}", f"{grid.largest_bulk_size:,}", _milliseconds(grid.seconds)]
        rows.append([_c(grid), str(grid.shape).replace(" ", ""), size, *(fitting if grid.fits else ["-"] * 3)])
    print_table(["c", "grid", f"memory, {unit}", "best bulk", "largest bulk", "epoch, ms"], rows)


def _show_memory(plan: ClusterPlan) -> None:
    """Print what the memory of a rank is for; hub rows only where some are kept."""
    names = [name for name in plan.grids[0].memory if any(grid.memory[name] for grid in plan.grids)]
    unit = unit_for(grid.memory_bytes for grid in plan.grids)
    print_sentence(f"What it is for: memory of a rank, in {unit}. The more replication, the larger.")
    sizes = ([grid.memory_bytes, *(grid.memory[name] for name in names)] for grid in plan.grids)
    rows = ([_c(grid), *bytes_column(column, unit)] for grid, column in zip(plan.grids, sizes, strict=True))
    print_table(["c", "total", *names], rows)


def _show_phases(plan: ClusterPlan) -> None:
    """Print the phases of each replication that fits, those that take longest first."""
    fitting = [grid for grid in plan.grids if grid.phases]
    unit = unit_for(size for grid in fitting for phase in grid.phases for size in (phase.received_max, phase.sent_max))
    print_sentence(
        f"Where the time of an epoch goes, and a rank's bytes, in {unit}, of the rank that has most: the first phases "
        "of a replication are those to save at."
    )
    rows = []
    for grid in fitting:
        rows.append([f"c = {_c(grid)}", _milliseconds(grid.seconds), "", "", ""])
        for phase in sorted(grid.phases, key=lambda phase: -phase.seconds):
            sizes = bytes_column([phase.received_max, phase.sent_max], unit)
            rows.append([f"  {phase.phase}", _milliseconds(phase.seconds), *sizes, f"{phase.messages_max:,.0f}"])
        rows.append([])
    print_table(["c, phase", "time, ms", f"received, {unit}", f"sent, {unit}", "messages"], rows)


def _c(grid: GridPlan) -> str:
    return str(grid.shape.replication)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.2f}"


def _seconds(seconds: float) -> str:
    """A time in a unit that people read.

    Examples
    --------
    >>> _seconds(0.00012), _seconds(0.25), _seconds(12.3)
    ('0.12 ms', '250 ms', '12.3 s')
    """
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2f} ms"
