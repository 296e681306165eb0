"""``spsample cache-report``: what caches, bulks, copies, partitions and local seeds would save."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spsample.cli import sampling
from spsample.cli.options import AsJson, overridden, with_options
from spsample.cli.screen import print_json, print_line, print_sentence, print_table, write_facts
from spsample.common.options import Option, at_least
from spsample.common.units import count, format_bytes
from spsample.errors import InputError
from spsample.settings import SamplerChoice, SamplerSizes
from spsample.settings.sampling import BatchSize, RandomSeed, Seeds

if TYPE_CHECKING:
    from spsample.advice import CacheReport


@dataclass(frozen=True)
class CacheReportOptions(SamplerSizes, SamplerChoice):
    """Options of sampling, and of what it is measured for."""

    batch_size: BatchSize = 1024
    bulk_size: Annotated[
        int, Option("Minibatches of a bulk, which lookahead knows.", "Sampling", check=at_least(1))
    ] = 64
    seeds: Seeds = "auto"
    random_seed: RandomSeed = 0
    epochs: Annotated[int, Option("Epochs of the trial.", "Trial", check=at_least(1), common=True)] = 3
    row_bytes: Annotated[
        int | None, Option("Bytes of a row of features.", "Trial", check=at_least(1), unset="those of the data, or 400")
    ] = None
    ranks: Annotated[
        int, Option("Devices or ranks, for copies and partitions; 1: none.", "Ranks", check=at_least(1))
    ] = 4
    alpha: Annotated[float, Option("Cost of a row from a peer over that of one from the host.", "Ranks")] = 0.5
    rank_budget: Annotated[float, Option("Share of the rows that each of them caches.", "Ranks")] = 0.05


@with_options(CacheReportOptions)
def cache_report(
    typed: dict[str, Any],
    source: Annotated[str, typer.Argument(help=sampling.SOURCE)],
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the JSON to this file.")] = None,
) -> None:
    """Recommend what moves fewer rows of features: rows to cache, copies, an order.

    A few trial epochs are sampled. What comes of it: hits of each score and budget, by a set that stays and with
    lookahead; distinct rows of several batches; bytes of an epoch under each plan of copies and each partition, with
    and without local seeds; and what to do, in a few sentences.

    Examples
    --------
    * `spsample cache-report graphs/products --fanouts 15,10,5`
    * `spsample cache-report rmat:16,16 --seeds all --sampler ladies --ranks 8`
    """
    from spsample.advice import advise
    from spsample.advice import cache_report as measured
    from spsample.data import load_dataset
    from spsample.sampling.workload import Workload

    options = overridden(CacheReportOptions(), typed)
    if output is not None and not output.parent.is_dir():  # before anything is sampled
        raise InputError(argument="--output", given=str(output), expected="a file in a folder that exists")
    sampler = sampling.make_sampler(options, typed)
    data = load_dataset(source)
    row_bytes = options.row_bytes
    if row_bytes is None:
        row_bytes = 400 if data.x is None else 4 * data.x.shape[1]
    work = Workload(data.graph, sampling.seeds_of(data, options.seeds), sampler, options.batch_size)
    given = {name: getattr(options, name) for name in ("bulk_size", "random_seed", "epochs", "ranks", "alpha")}
    report = measured(work, row_bytes, **given, budget=options.rank_budget)
    sentences = advise(report)
    facts = {"source": source, **report.as_dict(), "advice": sentences}
    if as_json:
        print_json(facts)
    else:
        _show(report, sentences)
    if output is not None:
        write_facts(output, facts)


def _show(report: CacheReport, sentences: list[str]) -> None:
    """Print what to do, then the tables that it comes from, each with its words explained."""
    for sentence in sentences:
        print_sentence(f"-> {sentence}")
    print_line("")
    batches = count(report.num_batches, "batch", "batches")
    print_sentence(
        f"{batches} an epoch, {report.rows_per_batch:,.0f} rows a batch: {report.rows_per_batch / report.num_nodes:.1%}"
        f" of {report.num_nodes:,}. Without a cache {format_bytes(report.bytes_per_epoch)} an epoch."
        " A row is the features of a vertex."
    )
    print_line("")
    _show_hits(report)
    print_sentence('Where the rows of several batches are fetched together (fetch="bulk"), each comes once.')
    unions = [(f"{union.k:,}", union.rows_per_batch) for union in report.unions]
    print_table(["Batches fetched together", "rows each"], unions)
    if report.copies:
        _show_ranks(report)


def _show_hits(report: CacheReport) -> None:
    needed = count(report.bulk_size, "batch needs", "batches need")
    print_sentence(
        "A row is hit where it is in the cache, which has room for a share of all rows. Which rows it keeps is chosen"
        f" by a score, and they stay; lookahead keeps those that the next {needed}."
    )
    budgets = sorted({share.budget for share in report.hits})
    rows = []
    for name, how in dict.fromkeys((share.score, share.replacement) for share in report.hits):
        known = ", lookahead" if how == "lookahead" else ""
        rows.append([f"{name}{known}", *(100 * report.hit(name, how, budget) for budget in budgets)])
    print_table(["Rows hit, % of the rows cached", *(f"{budget:.0%}" for budget in budgets)], rows)


def _show_ranks(report: CacheReport) -> None:
    """Print what copies on devices, and partitions over ranks, move."""
    from spsample.advice import PARTITIONS

    share = f"{report.budget:.0%}"
    print_sentence(
        "Each device keeps copies of some rows, by a plan, and asks its peers, the other devices, before the host. The"
        f" cost is that of all rows from the host; a row from a peer counts {report.alpha:g} of one from there."
    )
    rows = []
    for plan in report.copies:
        cost = (plan.host_bytes + report.alpha * plan.peer_bytes) / max(report.bytes_per_epoch, 1.0)
        rows.append([plan.method, plan.host_bytes, plan.peer_bytes, 100 * cost])
    print_table([f"Copies, {report.ranks} devices of {share} each", "host, bytes", "peers, bytes", "cost, %"], rows)
    print_sentence(
        "Each rank owns the rows of a part of the vertices, and receives others. Local batches have seeds of the rank's"
        " own part. The largest rank is given over the mean of the ranks."
    )
    caches = {"none": "no cache", "static": f"{share} cached", "lookahead": f"{share}, lookahead"}
    rows = []
    for part in report.partitions:
        name = f"{part.method}, {part.batches} batches, {caches[part.cache]}"
        rows.append([name, part.epoch, part.largest / part.mean if part.mean else 1.0])
    print_table([f"Received by {report.ranks} ranks", "epoch, bytes", "largest rank"], rows)
    compared = {part.method for part in report.partitions}
    for method, reason in PARTITIONS.items():
        if method not in compared:
            print_sentence(f"{method} is left out: {reason}.")
