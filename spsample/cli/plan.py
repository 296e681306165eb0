"""``spsample plan``: what bulks of a sampler take, how many batches fit, and what a job takes on a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from inspect import getdoc
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spsample.cli import cluster, sampling
from spsample.cli.options import overridden, with_options
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


@with_options(sampling.SamplingOptions, cluster.ClusterOptions, cluster.GraphSize)
def plan(
    given: dict[str, Any],
    source: Annotated[str | None, typer.Argument(help=sampling.SOURCE)] = None,
    bulk_size: Annotated[int | None, typer.Option(help="Also predict bulks of this many batches.")] = None,
    prefetch: Annotated[int, typer.Option(help="Bulks sampled ahead, as of a BulkLoader.")] = 1,
    ranks: Annotated[
        int | None,
        typer.Option(help="Plan for this number of ranks, p, instead of this machine.", rich_help_panel=cluster.PANEL),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    output: Annotated[str | None, typer.Option("--output", "-o", help="Also write the JSON to this file.")] = None,
) -> None:
    """Predict the memory of bulks, and the largest number of batches that fits in a budget.

    A few pilot batches are sampled for it. Features are counted where the source has some. With --ranks: memory of a
    rank, the largest bulk, bytes and time per phase on a cluster, for each replication.
    """
    options = overridden(sampling.SamplingOptions(), given)
    program = sampling.make_sampler(given)
    if ranks is None:
        cluster.refuse_without_ranks(given)
        facts = _local_facts(_require_source(source), program, options, bulk_size, prefetch)
        show: Callable[[], None] = partial(_show, facts)
    else:
        _refuse_local(options.memory_budget, bulk_size)
        job = overridden(cluster.ClusterOptions(), given)
        size = overridden(cluster.GraphSize(), given)
        pilot = _pilot(source, size, program, options, job.feature_bytes)
        source = size.like if source is None else source
        made, facts = cluster.cluster_facts(
            pilot, job, source, ranks=ranks, edge_ids=options.edge_ids, prefetch=prefetch
        )
        show = partial(cluster.show_cluster, made, facts)
    if output is not None:
        cluster.write_facts(output, facts)
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        show()


plan.__doc__ = f"{getdoc(plan)}\n{_EXAMPLES}"


def _local_facts(
    source: str, sampler: Sampler, options: sampling.SamplingOptions, bulk_size: int | None, prefetch: int
) -> dict[str, Any]:
    """A plan for this machine."""
    from spsample.data import load_dataset
    from spsample.loading import BulkLoader
    from spsample.planning.memory_check import default_budget

    dataset = load_dataset(source)
    loader = BulkLoader(
        dataset.graph,
        sampling.seeds_of(dataset, options.seeds),
        sampler,
        batch_size=options.batch_size,
        bulk_size="auto" if bulk_size is None else bulk_size,
        memory_budget=default_budget() if options.memory_budget is None else options.memory_budget,
        prefetch=prefetch,
        features=dataset.x,
        edge_ids=options.edge_ids,
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
    options: sampling.SamplingOptions,
    feature_bytes: int | None,
) -> Pilot:
    """Sampled on the data set, or on a smaller graph of a kind."""
    from spsample.data import load_dataset
    from spsample.planning.cluster.pilot import sample_pilot

    if source is None and size.like is not None:
        return size.pilot(sampler, options.batch_size, 0 if feature_bytes is None else feature_bytes)
    dataset = load_dataset(_require_source(source))
    size.require_unused()
    width = 0 if dataset.x is None else 4 * dataset.x.shape[1]
    return sample_pilot(
        dataset.graph,
        sampling.seeds_of(dataset, options.seeds),
        sampler,
        batch_size=options.batch_size,
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
