"""``spsample plan``: what bulks of a sampler take, how many batches fit, and what a job takes on a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import getdoc
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spsample.cli import cluster, sampling
from spsample.cli.config import ConfigOption
from spsample.cli.naming import as_typed
from spsample.cli.screen import bytes_column, print_line, print_sentence, print_table, table, unit_for
from spsample.errors import InputError

if TYPE_CHECKING:
    from spsample.planning import BulkPlan
    from spsample.planning.cluster.pilot import Pilot
    from spsample.sampling import Sampler

__all__ = ["plan"]

_EXAMPLES = """
Examples:

* `spsample plan rmat:16,16`
* `spsample plan rmat:16,16 --sampler ladies --layer-sizes 512,512 --memory-budget 2GiB`
* `spsample plan planted:20000 --fanouts 15,10 --bulk-size 8 --json`
* `spsample plan graphs/products --ranks 16 --memory-per-rank 40GB --links perlmutter --model-size 4MB`
* `spsample plan --like rmat --num-nodes 111000000 --average-degree 29 --feature-bytes 512 --ranks 64`
"""
_SIZES = (1, 8, 64, 512)


@as_typed()
def plan(
    source: Annotated[
        str | None, typer.Argument(help="Whatever `spsample train` takes: a path, or the name of a data set.")
    ] = None,
    sampler: sampling.SamplerName = "graphsage",
    fanouts: sampling.Fanouts = None,
    layer_sizes: sampling.LayerSizes = None,
    layout: sampling.Layout = "blocks",
    batch_size: sampling.BatchSize = 1024,
    seeds: sampling.Seeds = "auto",
    edge_ids: sampling.EdgeIds = False,
    memory_budget: sampling.MemoryBudget = None,
    bulk_size: Annotated[int | None, typer.Option(help="Also predict bulks of so many batches.")] = None,
    prefetch: Annotated[int, typer.Option(help="Bulks sampled ahead, as of a BulkLoader.")] = 1,
    config: Annotated[str | None, ConfigOption] = None,
    ranks: cluster.Ranks = None,
    replication: cluster.Replication = None,
    memory_per_rank: cluster.MemoryPerRank = None,
    links: cluster.LinksName = None,
    alpha: cluster.Alpha = None,
    bandwidth: cluster.Bandwidth = None,
    ranks_per_node: cluster.RanksPerNode = None,
    threads_per_rank: cluster.ThreadsPerRank = None,
    algorithm: cluster.AlgorithmName = None,
    replicate_hubs: cluster.ReplicateHubs = None,
    model_size: cluster.ModelSize = None,
    feature_bytes: cluster.FeatureBytes = None,
    like: cluster.Like = None,
    num_nodes: cluster.NumNodes = None,
    average_degree: cluster.AverageDegree = None,
    num_seeds: cluster.NumSeeds = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    output: Annotated[str | None, typer.Option("--output", "-o", help="Also write the JSON to this file.")] = None,
) -> None:
    """Predict the memory of bulks, and the largest number of batches that fits in a budget.

    A few pilot batches are sampled for it. Features are counted where the source has some. With --ranks: memory of a
    rank, the largest bulk, bytes and time per phase on a cluster, for each replication.
    """
    size = cluster.GraphSize(like, num_nodes, average_degree, num_seeds)
    program = sampling.make_sampler(sampler, fanouts, layer_sizes, layout)
    if ranks is None:
        cluster.refuse_without_ranks(
            replication=replication,
            memory_per_rank=memory_per_rank,
            links=links,
            threads_per_rank=threads_per_rank,
            algorithm=algorithm,
            replicate_hubs=replicate_hubs,
            ranks_per_node=ranks_per_node,
            alpha=alpha,
            bandwidth=bandwidth,
            model_size=model_size,
            feature_bytes=feature_bytes,
            **vars(size),
        )
        local = _Local(batch_size, seeds, memory_budget, bulk_size, prefetch, edge_ids)
        facts = local.facts(_require_source(source), program)
        show: Callable[[], None] = partial(_show, facts)
    else:
        _refuse_local(memory_budget, bulk_size)
        options = cluster.ClusterOptions(
            ranks=ranks,
            replication=replication,
            memory_per_rank=memory_per_rank,
            links=links,
            alpha=alpha,
            bandwidth=bandwidth,
            ranks_per_node=ranks_per_node,
            threads_per_rank=threads_per_rank,
            algorithm=algorithm,
            replicate_hubs=replicate_hubs,
            model_size=model_size,
            edge_ids=edge_ids,
            prefetch=prefetch,
        )
        pilot = _pilot(source, size, program, batch_size, seeds, feature_bytes)
        made, facts = cluster.cluster_facts(pilot, options, size.like if source is None else source)
        show = partial(cluster.show_cluster, made, facts)
    if output is not None:
        cluster.write_facts(output, facts)
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        show()


plan.__doc__ = f"{getdoc(plan)}\n{_EXAMPLES}"


@dataclass(frozen=True)
class _Local:
    """A plan for this machine."""

    batch_size: int
    seeds: str
    memory_budget: str | None
    bulk_size: int | None
    prefetch: int
    edge_ids: bool

    def facts(self, source: str, sampler: Sampler) -> dict[str, Any]:
        from spsample.data import load_dataset
        from spsample.loading import BulkLoader
        from spsample.planning.room import default_budget

        dataset = load_dataset(source)
        loader = BulkLoader(
            dataset.graph,
            sampling.seeds_of(dataset, self.seeds),
            sampler,
            batch_size=self.batch_size,
            bulk_size="auto" if self.bulk_size is None else self.bulk_size,
            memory_budget=default_budget() if self.memory_budget is None else self.memory_budget,
            prefetch=self.prefetch,
            features=dataset.x,
            edge_ids=self.edge_ids,
        )
        made = _facts(loader.plan, min(loader.bulk_size, max(len(loader), 1)))  # type: ignore[arg-type]  # there is a budget, so there is a plan
        return {"source": source, "sampler": repr(loader.sampler), **made}


def _require_source(source: str | None) -> str:
    if source is None:
        raise InputError(argument="SOURCE", given="none", expected="a data set, or --like with --ranks")
    return source


def _refuse_local(memory_budget: str | None, bulk_size: int | None) -> None:
    if memory_budget is not None:
        given = f"{memory_budget} with --ranks"
        raise InputError(argument="memory_budget", given=given, expected="--memory-per-rank on a cluster")
    if bulk_size is not None:
        given = f"{bulk_size} with --ranks"
        raise InputError(argument="bulk_size", given=given, expected="none: a plan for a cluster finds it")


def _pilot(
    source: str | None,
    size: cluster.GraphSize,
    sampler: Sampler,
    batch_size: int,
    seeds: str,
    feature_bytes: int | None,
) -> Pilot:
    """Sampled on the data set, or on a smaller graph of a kind."""
    from spsample.data import load_dataset
    from spsample.planning.cluster.pilot import sample_pilot

    if source is None and size.like is not None:
        return size.pilot(sampler, batch_size, 0 if feature_bytes is None else feature_bytes)
    dataset = load_dataset(_require_source(source))
    size.require_unused()
    width = 0 if dataset.x is None else 4 * dataset.x.shape[1]
    return sample_pilot(
        dataset.graph,
        sampling.seeds_of(dataset, seeds),
        sampler,
        batch_size=batch_size,
        feature_bytes=width if feature_bytes is None else feature_bytes,
    )


def _facts(made: BulkPlan, loader_bulk_size: int) -> dict[str, Any]:
    sizes = sorted({*(k for k in _SIZES if k < made.num_batches), made.bulk_size, loader_bulk_size})
    return {
        "num_batches": made.num_batches,
        "batch_size": made.batch_size,
        "memory_budget": made.memory_budget,
        "bytes_per_batch": made.bytes_per_batch,
        "fixed_bytes": made.fixed_bytes,
        "feature_bytes": made.feature_bytes,
        "kept_bytes": made.kept_bytes,
        "largest_bulk_size": made.bulk_size,
        "loader_bulk_size": loader_bulk_size,
        "predicted_peak": {str(k): made.peak(k) for k in sizes},
        "pilot_batches": made.counts.batches,
        "pilot_seconds": made.pilot_seconds,
    }


def _show(facts: dict[str, Any]) -> None:
    from spsample.common.units import format_bytes

    print_line(
        f"{facts['source']}: {facts['num_batches']:,} minibatches of at most {facts['batch_size']:,} seeds, "
        f"{facts['sampler']}"
    )
    print_line(
        f"a batch takes {format_bytes(facts['bytes_per_batch'])}, beside the {format_bytes(facts['fixed_bytes'])} "
        "that any number of them takes"
    )
    pilots = facts["pilot_batches"]
    print_line(f"{pilots} pilot {'batch' if pilots == 1 else 'batches'} took {facts['pilot_seconds']:.2f} s")
    print_line("")
    peaks = {int(k): peak for k, peak in facts["predicted_peak"].items()}
    unit = unit_for(peaks.values())
    print_sentence(f"The most memory of a bulk, in {unit}, by the number of its batches:")
    shown = table("batches", f"peak, {unit}")
    shown.columns[0].justify = "right"
    for k, peak in zip(peaks, bytes_column(list(peaks.values()), unit), strict=True):
        shown.add_row(f"{k:,}", peak)
    print_table(shown)
    largest, taken = facts["largest_bulk_size"], facts["loader_bulk_size"]
    print_line(
        f"largest bulk within {format_bytes(facts['memory_budget'])}: {largest:,} batches; a loader takes {taken:,}"
    )
    if taken < largest:
        print_sentence("A loader samples ahead: it holds several bulks, each of an eighth of an epoch at most.")
