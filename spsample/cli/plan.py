"""``spsample plan``: what bulks of a sampler take, how many batches fit, and what a job takes on a cluster.

Parameters of the command are what it plans for and where its output goes; all else is a field of a dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spsample.cli import cluster, sampling
from spsample.cli.options import AsJson, overridden, refuse_given, with_options
from spsample.cli.screen import bytes_column, print_json, print_line, print_sentence, print_table, unit_for, write_facts
from spsample.common.options import settings_of
from spsample.common.units import count
from spsample.errors import InputError
from spsample.settings.sampling import MEMORY_BUDGET, Prefetch

if TYPE_CHECKING:
    from spsample.planning import BulkPlan
    from spsample.planning.cluster.pilot import Pilot
    from spsample.sampling import Sampler

_SIZES = (1, 8, 64, 512)
_SIZES_OF_PLAN = ("bytes_per_batch", "fixed_bytes", "feature_bytes", "kept_bytes")


@dataclass(frozen=True)
class PlanOptions(sampling.SamplingOptions):
    """Options of sampling, and how far ahead."""

    memory_budget: Annotated[int | str | None, replace(MEMORY_BUDGET, unset="half of what is available")] = None
    prefetch: Prefetch = 1


@with_options(PlanOptions, cluster.ClusterOptions, cluster.GraphSize, common=("bulk_size", "memory_budget"))
def plan(
    typed: dict[str, Any],
    source: Annotated[str | None, typer.Argument(help=sampling.SOURCE)] = None,
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
    * `spsample plan --like rmat --num-nodes 111000000 --average-degree 29 --feature-bytes 512 --ranks 64`
    """
    options = overridden(PlanOptions(), typed)
    job = overridden(cluster.ClusterOptions(), typed)
    sampler = sampling.make_sampler(options, typed)
    if job.ranks is None:
        names = [option.name for cls in (cluster.ClusterOptions, cluster.GraphSize) for option in settings_of(cls)]
        refuse_given(typed, names, "without --ranks", "--ranks, for a cluster")
        facts = _local_facts(_require_source(source), sampler, options)
        show: Callable[[], None] = partial(_show, facts)
    else:
        refuse_given(typed, ["memory_budget"], "with --ranks", "--memory-per-rank on a cluster")
        if options.bulk_size != "auto":
            refuse_given(typed, ["bulk_size"], "with --ranks", "none: a plan for a cluster finds it")
        pilot, can_train = _pilot(source, sampler, options, job.feature_bytes, typed)
        path, source = source or "GRAPH", typed["like"] if source is None else source
        cluster_plan, facts = cluster.cluster_facts(
            pilot, job, source, ranks=job.ranks, edge_ids=options.edge_ids, prefetch=options.prefetch
        )
        line = cluster.train_line(cluster_plan, job, options, path, prefetch=options.prefetch) if can_train else None
        facts["train"] = line
        show = partial(cluster.show_cluster, cluster_plan, facts)
    if as_json:
        print_json(facts)
    else:
        show()
    if output is not None:
        write_facts(Path(output), facts)


def _local_facts(source: str, sampler: Sampler, options: PlanOptions) -> dict[str, Any]:
    """A plan for this machine."""
    from spsample.data import load_dataset
    from spsample.planning.bulk_plan import default_budget

    dataset = load_dataset(source)
    budget = default_budget() if options.memory_budget is None else options.memory_budget
    loader = sampling.make_loader(
        dataset, sampler, options, memory_budget=budget, prefetch=options.prefetch, features=dataset.x
    )
    facts = _facts(loader.plan, min(loader.bulk_size, max(len(loader), 1)))  # type: ignore[arg-type]  # there is a budget, so there is a plan
    return {"source": source, "sampler": repr(loader.sampler), **facts}


def _require_source(source: str | None) -> str:
    if source is None:
        raise InputError(argument="SOURCE", given="none", expected="a data set, or --like with --ranks")
    return source


def _pilot(
    source: str | None, sampler: Sampler, options: PlanOptions, feature_bytes: int | None, typed: Mapping[str, Any]
) -> tuple[Pilot, bool]:
    """Sampled on the data set, or on a smaller graph of a kind; and whether one can train on it."""
    from spsample.data import load_dataset
    from spsample.planning.cluster.pilot import sample_pilot

    size = overridden(cluster.GraphSize(), typed)
    if source is None and size.like is not None:
        return size.pilot(sampler, options.batch_size, 0 if feature_bytes is None else feature_bytes), True
    dataset = load_dataset(_require_source(source))
    refuse_given(typed, vars(size), "with a data set", "--like, and no data set")
    width = 0 if dataset.x is None else 4 * dataset.x.shape[1]
    pilot = sample_pilot(
        dataset.graph,
        sampling.seeds_of(dataset, options.seeds),
        sampler,
        batch_size=options.batch_size,
        feature_bytes=width if feature_bytes is None else feature_bytes,
    )
    return pilot, dataset.x is not None and len(dataset.train_idx) > 0 and dataset.num_classes > 0


def _facts(bulk_plan: BulkPlan, loader_bulk_size: int) -> dict[str, Any]:
    sizes = sorted({*(k for k in _SIZES if k < bulk_plan.num_batches), bulk_plan.bulk_size, loader_bulk_size})
    return {
        "num_batches": bulk_plan.num_batches,
        "batch_size": bulk_plan.batch_size,
        "memory_budget": bulk_plan.memory_budget,
        **{name: getattr(bulk_plan, name) for name in _SIZES_OF_PLAN},
        "largest_bulk_size": bulk_plan.bulk_size,
        "loader_bulk_size": loader_bulk_size,
        "predicted_peak": {str(k): bulk_plan.peak(k) for k in sizes},
        "pilot_batches": bulk_plan.counts.batches,
        "pilot_seconds": bulk_plan.pilot_seconds,
    }


def _show(facts: dict[str, Any]) -> None:
    from spsample.common.units import format_bytes

    batches = count(facts["num_batches"], "minibatch", "minibatches")
    print_line(f"{facts['source']}: {batches} of at most {facts['batch_size']:,} seeds, {facts['sampler']}")
    print_line(
        f"a batch takes {format_bytes(facts['bytes_per_batch'])}, beside the {format_bytes(facts['fixed_bytes'])} "
        "that any number of them takes"
    )
    pilots = count(facts["pilot_batches"], "pilot batch", "pilot batches")
    print_line(f"{pilots} took {facts['pilot_seconds']:.2f} s")
    print_line("")
    peaks = {int(k): peak for k, peak in facts["predicted_peak"].items()}
    unit = unit_for(peaks.values())
    print_sentence(f"The most memory of a bulk, in {unit}, by the number of its batches:")
    rows = zip((f"{k:,}" for k in peaks), bytes_column(list(peaks.values()), unit), strict=True)
    print_table(["batches", f"peak, {unit}"], rows, words=0)
    largest, taken = facts["largest_bulk_size"], facts["loader_bulk_size"]
    fits = count(largest, "batch", "batches")
    print_line(f"largest bulk within {format_bytes(facts['memory_budget'])}: {fits}; a loader takes {taken:,}")
    if taken < largest:
        print_sentence("A loader samples ahead: it holds several bulks, each of an eighth of an epoch at most.")
