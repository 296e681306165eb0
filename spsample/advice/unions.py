"""Rows of k batches together: what one fetch for a bulk spares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spsample.advice.trial import Trial

__all__ = ["Union", "unions"]


@dataclass(frozen=True)
class Union:
    """Distinct rows of k batches, the mean over the bulks of a trial.

    Attributes
    ----------
    k : int
    rows : float
        Distinct rows of k batches.
    rows_per_batch : float
        `rows` over k: what `fetch="bulk"` fetches for a batch, without a cache.
    """

    k: int
    rows: float
    rows_per_batch: float


def unions(trial: Trial, num_nodes: int) -> list[Union]:
    """For k = 1, 2, 4, ... up to the number of batches of the trial; a last bulk of fewer batches is left out.

    Examples
    --------
    >>> unions(Trial([np.array([0, 1]), np.array([1, 2])], 1, 0), 3)
    [Union(k=1, rows=2.0, rows_per_batch=2.0), Union(k=2, rows=3.0, rows_per_batch=1.5)]
    """
    found = []
    k = 1
    while k <= len(trial.batches):
        starts = range(0, len(trial.batches) - k + 1, k)
        sizes = [_distinct(trial, start, k, num_nodes) for start in starts]
        mean = float(np.mean(sizes))
        found.append(Union(k, mean, mean / k))
        k *= 2
    return found


def _distinct(trial: Trial, start: int, k: int, num_nodes: int) -> int:
    is_needed = np.zeros(num_nodes, np.bool_)
    for batch in trial.batches[start : start + k]:
        is_needed[batch] = True
    return int(np.count_nonzero(is_needed))
