"""``spsample plan``: what bulks of a sampler take, how many batches fit, and what a job takes on a cluster.

Parameters of the command are what it plans for and where its output goes; all else is a field of a dataclass.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from spsample.cli import sampling
from spsample.cli.options import AsJson, overridden, refuse_given, with_options
from spsample.cli.screen import print_json, print_line, print_sentence, print_table, write_facts
from spsample.common.options import at_least, settings_of
from spsample.common.units import count, format_bytes, require_bytes
from spsample.errors import InputError
from spsample.settings.runs import ALGORITHM, REPLICATION, ReplicateHubs, rank_option
from spsample.settings.sampling import MEMORY_BUDGET, Prefetch

if TYPE_CHECKING:
    from spsample.data import Dataset
    from spsample.planning.cluster import ClusterPlan
    from spsample.sampling import Sampler

_SIZES = (1, 8, 64, 512)
_NUMBERS = ("num_batches", "batch_size", "memory_budget", "bytes_per_batch", "fixed_bytes", "feature_bytes")


@dataclass(frozen=True)
class PlanOptions(sampling.SamplingOptions):
    """Options of sampling, and how far ahead."""

    memory_budget: Annotated[int | str | None, replace(MEMORY_BUDGET, unset="half of what is available")] = None
    prefetch: Prefetch = 1


def _divisor(text: str) -> int | None:
    if text != "all" and not text.isdecimal():
        raise InputError(argument="replication", given=repr(text), expected="a divisor of the ranks, or all")
    return None if text == "all" else int(text)


@dataclass(frozen=True)
class ClusterOptions:
    """Options of the cluster and the job."""

    ranks: Annotated[
        int | None, rank_option("Plan for this number of ranks, p, instead of this machine.", common=True)
    ] = None
    replication: Annotated[int | str | None, replace(REPLICATION, parse=_divisor, unset="all")] = None
    memory_per_rank: Annotated[str, rank_option("Memory of a GPU or a process.", check=require_bytes, common=True)] = (
        "40GB"
    )
    network: Annotated[
        str, rank_option("What connects the ranks.", choices=("perlmutter", "ethernet", "shared-memory"), common=True)
    ] = "perlmutter"
    alpha: Annotated[str | None, rank_option("Another latency between nodes, as in 2us.")] = None
    bandwidth: Annotated[
        str | None, rank_option("Another bandwidth of a network adapter, as in 25GB/s or 100Gbit/s.")
    ] = None
    duplex: Annotated[
        float, rank_option("Share of the bandwidth that is left each way where all ranks send and receive.")
    ] = 1.0
    ranks_per_node: Annotated[int | None, rank_option("Ranks on a node.", unset="what is usual in the network")] = None
    threads_per_rank: Annotated[
        int, rank_option("Threads of a rank, each with scratch of its own.", check=at_least(1))
    ] = 8
    algorithm: Annotated[str, replace(ALGORITHM, choices=("column", "stages", "oblivious"))] = "column"
    replicate_hubs: ReplicateHubs = None
    model_size: Annotated[
        str | None, rank_option("Gradients, as in 4MB.", unset="none are averaged", check=require_bytes, common=True)
    ] = None


@with_options(PlanOptions, ClusterOptions, common=("bulk_size", "memory_budget"))
def plan(
    typed: dict[str, Any],
    source: Annotated[str, typer.Argument(help=sampling.SOURCE)],
    as_json: AsJson = False,
    output: Annotated[str | None, typer.Option("--output", "-o", help="Also write the JSON to this file.")] = None,
) -> None:
    """Predict the memory of bulks, and the largest number of batches that fits in a budget.

    A few pilot batches are sampled for it. Features are counted where the source has some. With --ranks: memory of a
    rank, the largest bulk, bytes and time per phase on a cluster, for each replication.

    Examples
    --------
    * `spsample plan rmat:16,16`
    * `spsample plan rmat:16,16 --sampler ladies --layer-sizes 512,512 --memory-budget 2GiB`
    * `spsample plan planted:20000 --fanouts 15,10 --bulk-size 8 --json`
    * `spsample plan graphs/products --ranks 16 --memory-per-rank 40GB --network perlmutter --model-size 4MB`
    """
    from spsample.data import load_dataset

    options, job = overridden(PlanOptions(), typed), overridden(ClusterOptions(), typed)
    sampler = sampling.make_sampler(options, typed)
    if job.ranks is None:
        names = [option.name for option in settings_of(ClusterOptions)]
        refuse_given(typed, names, "without --ranks", "--ranks, for a cluster")
        facts = {"source": source, **_local_facts(load_dataset(source), sampler, options)}
        show = partial(_show_local, facts)
    else:
        refuse_given(typed, ["memory_budget"], "with --ranks", "--memory-per-rank on a cluster")
        if options.bulk_size != "auto":
            refuse_given(typed, ["bulk_size"], "with --ranks", "none: a plan for a cluster finds it")
        dataset = load_dataset(source)
        cluster, planned = _cluster_plan(dataset, sampler, options, job)
        facts = {"source": source, **planned}
        can_train = dataset.x is not None and len(dataset.train_idx) > 0 and dataset.num_classes > 0
        facts["train"] = _train_line(cluster, options, job, source) if can_train else None
        show = partial(_show_cluster, facts, cluster)
    if as_json:
        print_json(facts)
    else:
        show()
    if output is not None:
        write_facts(Path(output), facts)


def _local_facts(dataset: Dataset, sampler: Sampler, options: PlanOptions) -> dict[str, Any]:
    """A plan for this machine."""
    from spsample.planning.bulk_plan import default_budget

    budget = default_budget() if options.memory_budget is None else options.memory_budget
    ahead = {"prefetch": options.prefetch, "features": dataset.x}
    loader = sampling.make_loader(dataset, sampler, options, memory_budget=budget, **ahead)
    found: Any = loader.plan  # there is a budget, so there is a plan
    taken = min(loader.bulk_size, max(len(loader), 1))
    sizes = sorted({*(k for k in _SIZES if k < found.num_batches), found.bulk_size, taken})
    return {
        "sampler": repr(loader.sampler),
        **{name: getattr(found, name) for name in (*_NUMBERS, "kept_bytes")},
        "largest_bulk_size": found.bulk_size,
        "loader_bulk_size": taken,
        "predicted_peak": {str(k): found.peak(k) for k in sizes},
        "pilot_batches": found.counts.batches,
        "pilot_seconds": found.pilot_seconds,
    }


def _show_local(facts: dict[str, Any]) -> None:
    batches = count(facts["num_batches"], "minibatch", "minibatches")
    print_line(f"{facts['source']}: {batches} of at most {facts['batch_size']:,} seeds, {facts['sampler']}")
    each, fixed = format_bytes(facts["bytes_per_batch"]), format_bytes(facts["fixed_bytes"])
    print_line(f"a batch takes {each}, beside the {fixed} that any number of them takes")
    print_line("")
    peaks = [(int(k), peak) for k, peak in facts["predicted_peak"].items()]
    print_table(["batches", "most memory, bytes"], peaks, words=0)
    largest, taken = facts["largest_bulk_size"], facts["loader_bulk_size"]
    fits = count(largest, "batch", "batches")
    print_line(f"largest bulk within {format_bytes(facts['memory_budget'])}: {fits}; a loader takes {taken:,}")
    if taken < largest:
        print_sentence("A loader samples ahead: it holds several bulks, each of an eighth of an epoch at most.")


def _cluster_plan(
    dataset: Dataset, sampler: Sampler, options: PlanOptions, job: ClusterOptions
) -> tuple[ClusterPlan, dict[str, Any]]:
    """A plan for a cluster, and its facts."""
    from spsample.planning.cluster import Cluster, as_dict, plan_cluster
    from spsample.planning.cluster.exchanges import network_named, require_ranks_per_node
    from spsample.planning.cluster.pilot import sample_pilot

    network = network_named(job.network, job.alpha, job.bandwidth, job.duplex)
    cluster = Cluster(
        ranks=cast("int", job.ranks),
        memory_per_rank=require_bytes("memory_per_rank", job.memory_per_rank),
        network=network,
        ranks_per_node=require_ranks_per_node(network, job.ranks_per_node),
        threads=job.threads_per_rank,
        algorithm=cast("Any", job.algorithm),
        hub_budget=0 if job.replicate_hubs is None else require_bytes("replicate_hubs", job.replicate_hubs),
        model_bytes=0 if job.model_size is None else require_bytes("model_size", job.model_size),
        edge_ids=options.edge_ids,
        prefetch=options.prefetch,
    )
    pilot = sample_pilot(
        dataset.graph,
        sampling.seeds_of(dataset, options.seeds),
        sampler,
        batch_size=options.batch_size,
        feature_bytes=0 if dataset.x is None else 4 * dataset.x.shape[1],
    )
    plan = plan_cluster(pilot, cluster, replication=cast("int | None", job.replication))
    return plan, {
        "sampler": repr(pilot.sampler),
        **{name: getattr(pilot.profile, name) for name in ("num_nodes", "num_edges", "feature_bytes")},
        "batch_size": pilot.batch_size,
        "num_batches": pilot.num_batches,
        "pilot_batches": len(pilot.bulk),
        "pilot_seconds": pilot.seconds,
        **as_dict(plan),
    }


def _train_line(plan: ClusterPlan, options: PlanOptions, job: ClusterOptions, source: str) -> str | None:
    """The command that trains as was planned; None where nothing fits, or the algorithm is none to train with."""
    if job.algorithm == "oblivious" or not any(grid.fits for grid in plan.grids):
        return None
    best, ranks = plan.recommended, plan.cluster.ranks
    nodes = -(-ranks // plan.cluster.ranks_per_node)
    sizes = "fanouts" if options.sampler == "graphsage" else "layer_sizes"
    chosen = {
        "sampler": options.sampler,
        sizes: ",".join(map(str, getattr(options, sizes))),
        "batch_size": options.batch_size,
        "bulk_size": best.bulk_size,
        "prefetch": options.prefetch,
        "replication": best.shape.replication,
        "algorithm": job.algorithm,
        "replicate_hubs": job.replicate_hubs,
    }
    usual = {"sampler": "graphsage", "prefetch": 1, "replication": 1, "replicate_hubs": None}
    words = [(f"--{name.replace('_', '-')}", str(value)) for name, value in chosen.items() if value != usual.get(name)]
    start = ["spsample", "launch", "-n", str(ranks)]
    if nodes > 1:
        start = ["sbatch", "-N", str(nodes), "-n", str(ranks), "scripts/slurm/run.sh", "spsample"]
    return f"{shlex.join([*start, 'train', source])} \\\n    {shlex.join(chain(*words))}"


def _show_cluster(facts: dict[str, Any], plan: ClusterPlan) -> None:
    """Print the plan: a line per replication, memory, phases of those that fit, and what to take."""
    batches = count(facts["num_batches"], "minibatch", "minibatches")
    nodes = count(-(-facts["ranks"] // facts["ranks_per_node"]), "node", "nodes")
    size = f"{facts['num_nodes']:,} vertices, {facts['num_edges']:,} edges"
    print_line(f"{facts['source']}: {size}, {facts['feature_bytes']:,} bytes of features per vertex")
    print_line(f"{batches} of {facts['batch_size']:,} seeds an epoch, {facts['sampler']}")
    ranks = f"{count(facts['ranks'], 'rank', 'ranks')} of {format_bytes(facts['memory_per_rank'])} on {nodes}"
    print_line(f"{ranks}, network {facts['network']['name']}, algorithm {facts['algorithm']}")
    print_line(f"predicted from {count(facts['pilot_batches'], 'pilot batch', 'pilot batches')}")
    print_line("")
    grids = {str(grid["replication"]): grid for grid in facts["grids"]}
    _show_grids(grids)
    for c, grid in grids.items():
        if not grid["fits"]:
            print_sentence(f"c = {c} does not fit: {grid['refusal']}")
            print_line("")
    if facts["left_out"]:
        print_sentence(f"not planned, too large a table: c = {', '.join(map(str, facts['left_out']))}")
    _show_phases(grids)
    best = plan.recommended  # raises where none fits, which is the last word then
    bulk = count(best.bulk_size, "minibatch", "minibatches")
    took = f"{1000 * best.seconds:,.2f} ms of communication an epoch"
    print_line(f"take c = {best.shape.replication} and bulks of {bulk}: {took}")
    if facts["train"] is not None:
        print_line(facts["train"])


def _show_grids(grids: dict[str, Any]) -> None:
    """Print what each replication takes, and what the memory is for; hub rows only where some are kept."""
    print_sentence("For each replication c: the memory of a rank, batches in a bulk, communication of an epoch.")
    rows = []
    for c, grid in grids.items():
        fitting = grid["bulk_size"], grid["largest_bulk_size"], 1000 * grid["seconds"]
        figures = fitting if grid["fits"] else ["-"] * 3
        rows.append([c, f"{grid['blocks']}x{c}", grid["memory"]["total"], *figures])
    print_table(["c", "grid", "memory, bytes", "best bulk", "largest bulk", "epoch, ms"], rows)
    memory = {c: grid["memory"] for c, grid in grids.items()}
    names = [name for name in next(iter(memory.values())) if any(sizes[name] for sizes in memory.values())]
    names.remove("total")
    print_sentence("What the memory is for; the more replication, the larger.")
    sizes = ([c, *(sizes[name] for name in names)] for c, sizes in memory.items())
    print_table(["c", *(f"{name}, bytes" for name in names)], sizes)


def _show_phases(grids: dict[str, Any]) -> None:
    """Print the phases of each replication that fits, those that take longest first."""
    rows: list[list[Any]] = []
    for c, grid in grids.items():
        phases = sorted(grid["phases"].items(), key=lambda phase: -phase[1]["seconds"])
        for name, of in phases:
            moved = of["received_max"], of["sent_max"], round(of["messages_max"])
            rows.append([f"{c} {name}", 1000 * of["seconds"], *moved])
        rows.append([])
    if any(rows):
        print_sentence("Where the time of an epoch goes, and what the rank with most receives and sends.")
        print_table(["c, phase", "time, ms", "received, bytes", "sent, bytes", "messages"], rows)
