"""Hits of caches: of a set that stays, and of one that knows the next bulks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spsample.advice.received import lookahead_misses
from spsample.advice.trial import Trial
from spsample.features.score_order import hottest

__all__ = ["BEST", "Hits", "lookahead_hits", "static_hits"]

BEST = "the trial's own best set"


@dataclass(frozen=True)
class Hits:
    """Share of the rows that come from a cache.

    Attributes
    ----------
    score : str
    replacement : {"static", "lookahead"}
    budget : float
        Rows of the cache over all rows.
    hits : float
        Rows that are hit over rows that are needed.
    """

    score: str
    replacement: str
    budget: float
    hits: float


def static_hits(name: str, scores: NDArray[np.float64], counts: NDArray[np.int64], budgets: list[float]) -> list[Hits]:
    """Hits of the set of largest score, for each budget.

    Examples
    --------
    >>> static_hits("own", np.array([3.0, 2.0, 1.0]), np.array([1, 2, 1]), [0.34, 0.67])[1].hits
    0.75
    """
    gained = np.cumsum(counts[hottest(scores, len(scores))])
    total = max(int(gained[-1]) if len(gained) else 0, 1)
    sizes = [int(budget * len(counts)) for budget in budgets]
    hits = [float(gained[size - 1]) / total if size else 0.0 for size in sizes]
    return [Hits(name, "static", budget, hit) for budget, hit in zip(budgets, hits, strict=True)]


def lookahead_hits(
    name: str, scores: NDArray[np.float64], trial: Trial, budgets: list[float], bulk_size: int
) -> list[Hits]:
    """Hits of a cache that knows the batches of this bulk and of the next, and begins with the set of largest score."""
    total = max(trial.num_rows, 1)
    caches = [lookahead_misses(scores, int(budget * len(scores)), bulk_size) for budget in budgets]
    shares = [sum(map(len, misses(trial.batches))) / total for misses in caches]
    return [Hits(name, "lookahead", budget, 1.0 - share) for budget, share in zip(budgets, shares, strict=True)]
