"""How many distinct vertices several batches visit, from how often a few of them visited each vertex."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from spsample.common.lazily import lazily
from spsample.planning.cluster.grid_shape import FloatArray

RATES, ROUNDS = 96, 400


class Visits:
    """What m batches visited: `histogram[f]` things were visited by f of them, `histogram[0]` by none.

    Things are vertices, or entries of their rows. Up to m batches the expected number of distinct things is that of
    choosing some of the m batches (rarefaction, exact in the mean). Beyond, every thing has a probability of being
    visited by a batch, and how these are distributed is fitted to the histogram: a mixture of binomials of the greatest
    likelihood, by expectation maximisation (Norris, Pollock, "Nonparametric MLE under two closed capture-recapture
    models", Biometrics 1996).

    Examples
    --------
    >>> visits = Visits([90.0, 8.0, 1.0])       # two batches: eight vertices in one of them, one in both
    >>> visits.distinct(1), visits.distinct(2), visits.distinct(3) > 9
    (5.0, 9.0, True)
    """

    def __init__(self, histogram: NDArray[Any] | list[float]) -> None:
        self.histogram = np.asarray(histogram, np.float64)
        self.batches = len(self.histogram) - 1

    def distinct(self, batches: int) -> float:
        """Expected number of distinct things that `batches` batches visit."""
        if batches <= self.batches:
            return self._rarefied(batches)
        more = self._fitted(batches) - self._fitted(self.batches)
        return min(self._rarefied(self.batches) + more, float(self.histogram.sum()))

    def _rarefied(self, batches: int) -> float:
        return float(self.histogram[1:] @ seen(self.batches, batches))

    def _fitted(self, batches: int) -> float:
        shares, rates = self._mixture
        return float(self.histogram.sum() * (shares @ (1.0 - (1.0 - rates) ** batches)))

    @lazily
    def _mixture(self) -> tuple[FloatArray, FloatArray]:
        """Shares of things and the probability with which a batch visits them."""
        m, f = self.batches, np.arange(self.batches + 1)[:, None]
        rates = np.concatenate([[0.0], np.geomspace(1e-4 / m, 1.0 - 1e-6, RATES)])
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.nan_to_num(f * np.log(rates), nan=0.0) + (m - f) * np.log1p(-rates) + _choose(m, f)
        likelihood = np.exp(logs)
        shares = np.full(len(rates), 1.0 / len(rates))
        weights = self.histogram / max(float(self.histogram.sum()), 1.0)
        for _ in range(ROUNDS):
            shares = shares * (likelihood.T @ (weights / np.maximum(likelihood @ shares, 1e-300)))
        return shares, rates


class BlockVisits:
    """What m batches visited of each block row.

    Parameters
    ----------
    histogram : array (m + 1, p/c)
        Things of each block row by the number of batches that visited them; `histogram[0]` is not used.
    unvisited : float
        Things that no batch visited, of all block rows.
    """

    def __init__(self, histogram: FloatArray, unvisited: float) -> None:
        self._histogram = histogram
        self._all = Visits(np.concatenate([[max(unvisited, 0.0)], histogram[1:].sum(axis=1)]))

    def distinct(self, batches: int) -> FloatArray:
        """(p/c,): expected number of distinct things of each block row that `batches` batches visit."""
        known = seen(self._all.batches, min(batches, self._all.batches)) @ self._histogram[1:]
        sums: FloatArray = known * (self._all.distinct(batches) / max(float(known.sum()), 1e-300))
        return sums


def seen(pilots: int, batches: int) -> FloatArray:
    """For f = 1 .. m, the probability that something visited by f of m batches is visited by some of j chosen ones.

    It is missed with probability C(m - f, j) / C(m, j).

    Examples
    --------
    >>> seen(4, 2).round(3).tolist()
    [0.5, 0.833, 1.0, 1.0]
    """
    left = pilots - np.arange(1, pilots + 1)
    missed = np.exp(_choose(np.maximum(left, batches), batches) - _choose(pilots, batches))
    return 1.0 - np.where(left >= batches, missed, 0.0)


def _choose(n: NDArray[Any] | int, k: NDArray[Any] | int) -> FloatArray:
    """log C(n, k)."""
    n, k = np.asarray(n, np.float64), np.asarray(k, np.float64)
    logs: FloatArray = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return logs


__all__ = ["BlockVisits", "Visits", "seen"]
