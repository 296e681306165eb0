"""Batches of local seeds beside shuffled ones: what the rows of features cost that ranks do not keep themselves.

Each rank keeps copies of a few rows. A row that it does not keep costs 1 from the host, or alpha from another rank
that keeps it. Shuffled batches are planned for with one score of all seeds, by `best-copies`. Local ones with one score
for each rank, of its own seeds, and, to show what that gives, with the one of all seeds too. Costs are counted over
epochs that the scores have not seen, on ranks that are threads. Counts of these very epochs, taken for scores, show how
much better scores could be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from machine_facts import machine_facts
from spsample.comm import Communicator, run_threads
from spsample.data import partition_vertices
from spsample.errors import MissingDependencyError
from spsample.features import CopyPlan, plan_copies, score
from traces import EPOCHS, Cell, cell

RANKS = (4, 8)
PARTITIONS = ("ranges", "metis", "metis-seeds", "random")
ALL_SEEDS = "all seeds"
FIRST_EPOCH = 100
"""The first of those that are counted."""


@dataclass(frozen=True)
class Result:
    """Cost of an epoch, in rows from the host over the rows that its batches need, and over that of shuffled batches.

    `largest` is the rank that pays most, over the same rows of the mean rank; `batches` are those of an epoch, of all
    ranks.
    """

    graph: str
    sampler: str
    ranks: int
    share: float
    alpha: float
    batches_are: str
    copies: str
    scores_of: str
    batches: int
    smallest_batch: int
    rows: float
    host: float
    peer: float
    mean: float
    largest: float
    mean_over_shuffled: float
    largest_over_shuffled: float


@dataclass(frozen=True)
class Traced:
    """How often each rank needs each vertex in an epoch, (ranks, n), and what its batches are."""

    needs: NDArray[np.float64]
    batches: int
    smallest_batch: int


def traced(one: Cell, ranks: int, parts: NDArray[Any] | None, epochs: int) -> Traced:
    """What the loaders of all ranks sample: shuffled batches, or local ones of these parts."""
    options: dict[str, Any] = {} if parts is None else {"batches": "local", "parts": parts}

    def body(comm: Communicator) -> tuple[NDArray[np.float64], int, int]:
        graph = sp.ReplicatedGraph(one.graph, comm)
        loader = sp.BulkLoader(
            graph,
            one.seeds,
            one.sampler,
            batch_size=one.batch_size,
            bulk_size=4 * ranks,
            random_seed=1,
            prefetch=0,
            **options,
        )
        counts, smallest = np.zeros(one.graph.num_nodes), one.batch_size
        for minibatch in _minibatches(loader, epochs):
            counts[minibatch.src_nodes] += 1
            smallest = min(smallest, len(minibatch.seeds))
        return counts / epochs, loader.num_batches, smallest

    found = run_threads(ranks, body)
    return Traced(np.array([counts for counts, _, _ in found]), found[0][1], min(least for _, _, least in found))


def _minibatches(loader: sp.BulkLoader, epochs: int) -> Iterator[Any]:
    for epoch in range(FIRST_EPOCH, FIRST_EPOCH + epochs):
        for bulk in loader.bulks(epoch):
            yield from bulk


def rank_scores(one: Cell, parts: NDArray[Any], ranks: int) -> NDArray[np.float64]:
    """(ranks, n) the posterior of each rank's own seeds."""
    own = (one.seeds[parts[one.seeds] == rank] for rank in range(ranks))
    return np.array([score("posterior", one.graph, seeds, one.sampler, one.batch_size) for seeds in own])


@dataclass(frozen=True)
class Paid:
    """Rows of an epoch by where they come from, (ranks,) each."""

    rows: NDArray[np.float64]
    host: NDArray[np.float64]
    peer: NDArray[np.float64]

    def cost(self, alpha: float) -> NDArray[np.float64]:
        """(ranks,) in rows from the host."""
        return self.host + alpha * self.peer


def paid(plan: CopyPlan, trace: Traced) -> Paid:
    """What each rank fetches by a plan."""
    own = np.zeros(trace.needs.shape, np.bool_)
    for rank, vertices in enumerate(plan.vertices):
        own[rank, vertices] = True
    somewhere = own.any(axis=0)
    host, peer = (~somewhere)[None, :], somewhere & ~own
    return Paid(trace.needs.sum(axis=1), (trace.needs * host).sum(axis=1), (trace.needs * peer).sum(axis=1))


def partitions(one: Cell, ranks: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """The part of each vertex, by each method; METIS is left out where it is missing."""
    for method in PARTITIONS:
        try:
            yield method, partition_vertices(one.graph, ranks, method, seeds=one.seeds)
        except MissingDependencyError as error:
            print(f"{method}: missing ({error})", file=sys.stderr)


def compare(name: str, sampler: str, one: Cell, ranks: int, share: float, alpha: float, epochs: int) -> list[Result]:
    """Shuffled batches, and local ones of each partition."""
    budget = max(1, int(share * one.graph.num_nodes))
    common = score("posterior", one.graph, one.seeds, one.sampler, one.batch_size)
    shuffled = traced(one, ranks, None, epochs)
    best = paid(plan_copies(common, ranks, budget, alpha), shuffled)
    base = best.cost(alpha)

    def result(what: tuple[str, str, str], trace: Traced, found: Paid) -> Result:
        total, cost = float(found.rows.mean()), found.cost(alpha)
        return Result(
            *(name, sampler, ranks, share, alpha, *what, trace.batches, trace.smallest_batch, total),
            host=float(found.host.mean()) / total,
            peer=float(found.peer.mean()) / total,
            mean=float(cost.mean()) / total,
            largest=float(cost.max()) / total,
            mean_over_shuffled=float(cost.mean() / base.mean()),
            largest_over_shuffled=float(cost.max() / base.max()),
        )

    results = [result(("shuffled", "best-copies", ALL_SEEDS), shuffled, best)]
    own_hottest = paid(plan_copies(common, ranks, budget, alpha, method="replicated"), shuffled)
    results.append(result(("shuffled", "replicated", ALL_SEEDS), shuffled, own_hottest))
    for method, parts in partitions(one, ranks):
        trace = traced(one, ranks, parts, epochs)
        scores = {"own seeds": rank_scores(one, parts, ranks), ALL_SEEDS: common, "counted epochs": trace.needs}
        for scores_of, copies in product(scores, ("best-copies", "replicated")):
            found = paid(plan_copies(scores[scores_of], ranks, budget, alpha, method=copies), trace)
            results.append(result((f"local, {method}", copies, scores_of), trace, found))
    return results


def table(results: list[Result]) -> Table:
    """A row for each kind of batches and plan of copies."""
    head = ("graph", "ranks", "batches", "copies", "scores of", "rows an epoch", "host", "peer", "mean", "largest")
    shown = Table(*head, "mean / shuffled", "largest / shuffled", "steps", "smallest batch")
    for one in results:
        shares = (f"{value:.3f}" for value in (one.host, one.peer, one.mean, one.largest))
        over = (f"{one.mean_over_shuffled:.3f}", f"{one.largest_over_shuffled:.3f}")
        steps = -(-one.batches // one.ranks)
        row = (one.graph, str(one.ranks), one.batches_are, one.copies, one.scores_of, f"{one.rows:,.0f}")
        shown.add_row(*row, *shares, *over, str(steps), str(one.smallest_batch))
    return shown


def local_batches(
    graph: Annotated[list[str] | None, typer.Option(help="Or rmat:SCALE,EDGE_FACTOR. [cnr2000]")] = None,
    sampler: Annotated[str, typer.Option(help="GraphSAGE, LADIES or FastGCN.")] = "GraphSAGE",
    ranks: Annotated[list[int] | None, typer.Option(help="p. [4 8]")] = None,
    share: Annotated[float, typer.Option(help="Of all rows, kept by each rank.")] = 0.05,
    alpha: Annotated[float, typer.Option(help="Cost of a row of another rank over one of the host.")] = 0.5,
    epochs: Annotated[int, typer.Option(help="Epochs that are counted.")] = EPOCHS,
    out: Annotated[Path, typer.Option(help="Folder of local_batches.jsonl.")] = Path("bench/results"),
) -> None:
    """Batches of local seeds: what the rows cost that ranks do not keep themselves, beside shuffled batches."""
    one_cell = partial(compare, sampler=sampler, share=share, alpha=alpha, epochs=epochs)
    results: list[Result] = []
    for name, p in product(graph or ["cnr2000"], ranks or RANKS):
        results += one_cell(name, one=cell(name, sampler), ranks=p)
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(1)}, *({"kind": "cost", **asdict(one)} for one in results)]
    (out / "local_batches.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    Console(width=170).print(table(results))
