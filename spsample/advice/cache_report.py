"""`cache_report`: what caches, bulks, copies, partitions and one aggregation ahead would save a workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.advice.copies import Moved, copies_moved
from spsample.advice.hits import BEST, Hits, lookahead_hits, static_hits
from spsample.advice.partitions import PartitionBytes, partition_bytes
from spsample.advice.trial import Trial, Workload, run_trial
from spsample.advice.unions import Union, unions
from spsample.common.checks import require_choice, require_int, require_iterable, require_number, require_type
from spsample.errors import InputError
from spsample.features import score, score_names
from spsample.features.scores import usual_score
from spsample.sampling.arguments import check_arguments
from spsample.store import Graph

__all__ = ["BUDGETS", "SCORES", "CacheReport", "FirstAggregation", "Workload", "cache_report"]

BUDGETS = (0.01, 0.05, 0.1, 0.2, 0.25, 0.5)
SCORES = ("posterior", "inclusion", "presc", "reverse-pagerank", "out-degree", "random")


@dataclass(frozen=True)
class FirstAggregation:
    """What a batch needs with features aggregated once, over what it needs without.

    Attributes
    ----------
    rows, edges : float
    mean_bytes, gcn_bytes : float
        Bytes of rows: those of "mean" are twice as wide, those of "gcn" as wide as before.
    """

    rows: float
    edges: float
    mean_bytes: float
    gcn_bytes: float


@dataclass(frozen=True)
class CacheReport:
    """What a trial of a workload showed; see `spsample.advice.advise` for what to do about it.

    Attributes
    ----------
    num_nodes, num_batches, bulk_size, row_bytes : int
        Of the graph, of an epoch, of a bulk, of a row.
    rows_per_batch : float
        Rows that a batch needs, the mean.
    bytes_per_epoch : float
        Without any cache, batch by batch.
    hits : list of Hits
        For each score and budget; ``"the trial's own best set"`` is the most that a set which stays can have.
    unions : list of Union
        Distinct rows of k batches.
    copies : list of Moved
        Bytes of an epoch under each plan of copies.
    partitions : list of PartitionBytes
        Bytes that ranks receive.
    ranks : int
        Devices of `copies`, ranks of `partitions`.
    alpha, budget : float
        Of these: cost of a row from a peer over that from the host, rows of each cache over all rows.
    first_aggregation : FirstAggregation or None
        None for a sampler of one layer.
    """

    num_nodes: int
    num_batches: int
    bulk_size: int
    row_bytes: int
    rows_per_batch: float
    bytes_per_epoch: float
    hits: list[Hits]
    unions: list[Union]
    copies: list[Moved]
    partitions: list[PartitionBytes]
    ranks: int
    alpha: float
    budget: float
    first_aggregation: FirstAggregation | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)

    def hit(self, name: str, replacement: str, budget: float) -> float:
        """Return the share of hits of one cell.

        Raises
        ------
        KeyError
            If it was not measured.
        """
        for one in self.hits:
            if (one.score, one.replacement, one.budget) == (name, replacement, budget):
                return one.hits
        raise KeyError((name, replacement, budget))


def cache_report(
    workload: Workload,
    *,
    epochs: int = 3,
    scores: Sequence[str] | None = None,
    budgets: Sequence[float] = BUDGETS,
    ranks: int = 4,
    alpha: float = 0.5,
    budget: float = 0.05,
) -> CacheReport:
    """Measure on a trial what would move fewer rows of features.

    Parameters
    ----------
    workload : Workload
        What is sampled.
    epochs : int
        Epochs of the trial.
    scores : sequence of str, optional
        Names of scores. None: those of `SCORES` that the sampler allows.
    budgets : sequence of float
        Rows of a cache over all rows, above 0 and at most 1.
    ranks : int
        Devices or ranks that copies and partitions are compared for; at most as many as seeds. 1 leaves both out.
    alpha : float
        Cost of a row from another device over that of one from the host.
    budget : float
        Rows of each of these over all rows.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:8,4").graph
    >>> workload = Workload(graph, np.arange(64), sp.GraphSAGE([3, 3]), batch_size=16, row_bytes=64, bulk_size=4)
    >>> report = cache_report(workload, budgets=[0.1], ranks=2)
    >>> report.num_batches, report.hit("posterior", "lookahead", 0.1) > report.hit("random", "static", 0.1)
    (4, True)
    """
    workload = _checked(workload)
    scores, budgets = _checked_choices(scores, budgets, budget)
    ranks = _require_ranks(ranks, workload)
    require_number("alpha", alpha, lambda x: x > 0, "a number above 0")
    trial = run_trial(workload, require_int("epochs", epochs, minimum=1))
    n, best = workload.graph.num_nodes, usual_score(workload.graph, workload.sampler)
    made = {name: _scores(workload, name) for name in dict.fromkeys([best, *(scores or _possible(workload))])}
    counts = trial.counts(n)
    rows_of_epoch = counts / trial.epochs * float(workload.row_bytes)
    return CacheReport(
        num_nodes=n,
        num_batches=len(trial.batches) // trial.epochs,
        bulk_size=workload.bulk_size,
        row_bytes=workload.row_bytes,
        rows_per_batch=trial.num_rows / max(len(trial.batches), 1),
        bytes_per_epoch=float(rows_of_epoch.sum()),
        hits=_hits(trial, made, counts, budgets, workload.bulk_size),
        unions=unions(trial, n),
        copies=copies_moved(made[best], rows_of_epoch, ranks, budget, alpha) if ranks > 1 else [],
        partitions=list(partition_bytes(workload, trial, made[best], ranks, budget)) if ranks > 1 else [],
        ranks=ranks,
        alpha=alpha,
        budget=budget,
        first_aggregation=_first_aggregation(workload, trial),
    )


def _hits(
    trial: Trial, made: dict[str, NDArray[np.float64]], counts: NDArray[np.int64], budgets: list[float], bulk_size: int
) -> list[Hits]:
    """Static of each score, then lookahead of the first, then the best there can be."""
    first = next(iter(made))
    found = [one for name, scores in made.items() for one in static_hits(name, scores, counts, budgets)]
    found += lookahead_hits(first, made[first], trial, budgets, bulk_size)
    return found + static_hits(BEST, counts.astype(np.float64), counts, budgets)


def _first_aggregation(workload: Workload, trial: Trial) -> FirstAggregation | None:
    sizes = workload.sampler.sizes
    if len(sizes) < 2 or not trial.num_rows:
        return None
    shorter = run_trial(workload, trial.epochs, sampler=workload.sampler.with_sizes(sizes[:-1]))
    rows = shorter.num_rows / trial.num_rows
    return FirstAggregation(rows, shorter.num_edges / max(trial.num_edges, 1), 2 * rows, rows)


def _possible(workload: Workload) -> list[str]:
    needs_law = ("posterior", "inclusion")
    return [
        name for name in SCORES if usual_score(workload.graph, workload.sampler) == "posterior" or name not in needs_law
    ]


def _scores(workload: Workload, name: str) -> NDArray[np.float64]:
    return score(name, workload.graph, workload.seeds, workload.sampler, workload.batch_size)


def _require_ranks(ranks: Any, workload: Workload) -> int:
    count, seeds = require_int("ranks", ranks, minimum=1), len(np.unique(workload.seeds))
    if count > seeds:
        expected = f"at most as many as there are seeds: {seeds}"
        raise InputError(argument="ranks", given=str(count), expected=expected, hint="ranks=1 leaves partitions out.")
    return count


def _checked(workload: Workload) -> Workload:
    """The workload with its seeds as an array, once it is known to be one that can be sampled."""
    require_type("workload", workload, Workload, "a Workload")
    require_type("graph", workload.graph, Graph, "a Graph in memory, or a memory map")
    ids, _ = check_arguments(workload.graph, workload.seeds, workload.sampler, workload.batch_size)
    if len(ids) == 0:
        raise InputError(argument="seeds", given="none", expected="at least one seed")
    require_int("row_bytes", workload.row_bytes, minimum=1)
    require_int("bulk_size", workload.bulk_size, minimum=1)
    return replace(workload, seeds=ids)


def _checked_choices(
    scores: Sequence[str] | None, budgets: Sequence[float], budget: float
) -> tuple[list[str] | None, list[float]]:
    """Scores and budgets as lists."""
    names = None if scores is None else list(require_iterable("scores", scores, "names of scores"))
    for name in names or ():
        require_choice("scores", name, tuple(one for one in score_names() if one != "replay"))
    shares = list(require_iterable("budgets", budgets, "shares of the rows"))
    if not shares:
        raise InputError(argument="budgets", given="none", expected="at least one share of the rows")
    for argument, one in (*(("budgets", one) for one in shares), ("budget", budget)):
        require_number(argument, one, lambda x: 0 < x <= 1, "a share of the rows, above 0 and at most 1")
    return names, shares
