"""Exact laws of small cases by enumeration, in rational arithmetic, and p-values of observed frequencies.

An outcome is a tuple of what was drawn, in the order drawn; a law maps each possible outcome to its probability.
Nothing here reads the library: the laws are those of `docs/law.md`, section 3, stated in the plainest way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product

import numpy as np
from scipy import stats

Law = Mapping[tuple[int, ...], Fraction]

SMALLEST_P = 1e-6
"""What no p-value of a right sampler may fall below: a thousand of them raise one false alarm in a thousand suites."""


# --- laws ---------------------------------------------------------------------------------------------------------


def successive(weights: Sequence[int | Fraction], size: int) -> Law:
    """Successive sampling: each next outcome in proportion to its weight among those not yet drawn.

    >>> successive([1, 1, 2], 1)[(2,)]
    Fraction(1, 2)
    >>> successive([1, 1, 2], 2)[(2, 0)]
    Fraction(1, 4)
    """
    law: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    for _ in range(size):
        longer = {}
        for drawn, p in law.items():
            left = {v: Fraction(w) for v, w in enumerate(weights) if w and v not in drawn}
            total = sum(left.values())
            longer.update({(*drawn, v): p * w / total for v, w in left.items()})
        law = longer
    return law


def independent(weights: Sequence[int | Fraction], size: int) -> Law:
    """Draws with replacement.

    >>> independent([1, 3], 2)[(1, 1)]
    Fraction(9, 16)
    """
    total = Fraction(sum(weights))
    law = {}
    for drawn in product([v for v, w in enumerate(weights) if w], repeat=size):
        p = Fraction(1)
        for v in drawn:
            p *= weights[v] / total
        law[drawn] = p
    return law


def floyd(degree: int, size: int) -> Law:
    """Floyd's algorithm, with the order in which it returns positions: every combination of its integers.

    >>> floyd(3, 1)[(0,)]
    Fraction(1, 3)
    """
    law: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    choices = [range(degree - size + j + 1) for j in range(size)]
    for integers in product(*choices):
        drawn: list[int] = []
        for j, t in enumerate(integers):
            drawn.append(degree - size + j if t in drawn else t)
        p = Fraction(1)
        for choice in choices:
            p /= len(choice)
        law[tuple(drawn)] += p
    return dict(law)


def sets_of(law: Law) -> Law:
    """The same law without the order.

    >>> sets_of(successive([1, 1, 2], 2))[(0, 1)]
    Fraction(1, 6)
    """
    merged: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for drawn, p in law.items():
        merged[tuple(sorted(drawn))] += p
    return dict(merged)


def inclusion(law: Law, together: int = 1) -> Law:
    """Probability that each vertex (each pair with together=2) is among those drawn.

    >>> inclusion(successive([1, 1, 2], 2), 2)[(0, 1)]
    Fraction(1, 6)
    """
    result: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for drawn, p in law.items():
        for members in combinations(sorted(set(drawn)), together):
            result[members] += p
    return dict(result)


def expectation(law: Law, value: Mapping[tuple[int, ...], Fraction]) -> Fraction:
    """Mean of `value` over the law."""
    return sum((p * value[drawn] for drawn, p in law.items()), Fraction(0))


Row = Sequence[tuple[int, float | Fraction]]
"""Entries (column, weight) of one row of A, repeats allowed."""


def norm_weights(rows: Iterable[Row], num_columns: int) -> list[Fraction]:
    """LADIES `norm`, and FastGCN with all rows: sum of squared entries in each column."""
    return _column_sums([[(v, Fraction(w) ** 2) for v, w in row] for row in rows], num_columns)


def squared_count_weights(rows: Iterable[Row], num_columns: int) -> list[Fraction]:
    """LADIES `squared_count`: square of the sum of each column's entries."""
    return [w**2 for w in _column_sums(rows, num_columns)]


def _column_sums(rows: Iterable[Row], num_columns: int) -> list[Fraction]:
    sums = [Fraction(0)] * num_columns
    for row in rows:
        for v, w in row:
            sums[v] += Fraction(w)
    return sums


# --- p-values -----------------------------------------------------------------------------------------------------


def outcome_p_value(samples: np.ndarray, law: Law) -> float:
    """Smallest of the p-values of ordered outcomes, sets, inclusion and pair-inclusion frequencies, times their number.

    `samples` (draws, size): one outcome a row. 0 where an impossible outcome was seen.
    """
    unordered = np.sort(samples, axis=1)
    p_values = [chi_square(samples, law), chi_square(unordered, sets_of(law))]
    p_values += [_inclusion_p_value(unordered, inclusion(law, m), m) for m in range(1, min(samples.shape[1], 2) + 1)]
    return smallest(p_values)


def chi_square(samples: np.ndarray, law: Law) -> float:
    """Chi-square of the outcomes (rows of `samples`) against the law; cells with an expectation below 5 are merged.

    >>> chi_square(np.array([[0], [1]] * 50), {(0,): Fraction(1, 2), (1,): Fraction(1, 2)})
    1.0
    """
    seen = _counted(samples)
    if any(law.get(drawn, 0) == 0 for drawn in seen):
        return 0.0
    cells = [(seen.get(drawn, 0), float(p) * len(samples)) for drawn, p in law.items()]
    return cells_p_value(cells)


def joint_uniform_p_value(first: np.ndarray, second: np.ndarray, m: int, n: int) -> float:
    """Chi-square of the joint table of uniform values in [0, m) and [0, n) against independence."""
    cell = {pair: Fraction(1, m * n) for pair in product(range(m), range(n))}
    return chi_square(np.stack([first, second], axis=1), cell)


def cells_p_value(cells: Iterable[tuple[int, float]]) -> float:
    """Chi-square of (observed, expected) cells, small ones merged into one."""
    large, observed, expected = [], 0, 0.0
    for o, e in cells:
        if e >= 5:
            large.append((o, e))
        else:
            observed, expected = observed + o, expected + e
    if expected > 0:
        if expected < 5 and large:
            o, e = large.pop()
            observed, expected = observed + o, expected + e
        large.append((observed, expected))
    if len(large) < 2:
        return 1.0
    o, e = np.array(large).T
    return float(stats.chisquare(o, e * (o.sum() / e.sum())).pvalue)


def _inclusion_p_value(unordered: np.ndarray, probabilities: Law, together: int) -> float:
    """Two-sided binomial p-value of the members' inclusion counts: the smallest, times their number."""
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    for drawn, count in _counted(unordered).items():
        for members in combinations(sorted(set(drawn)), together):
            counts[members] += count
    p_values = [
        binomial_p_value(counts.get(members, 0), len(unordered), float(p)) for members, p in probabilities.items()
    ]
    return smallest(p_values)


def binomial_p_value(count: int, draws: int, probability: float) -> float:
    """Twice the smaller tail of the binomial distribution.

    >>> binomial_p_value(0, 40, 0.5) < 1e-11
    True
    """
    probability = min(1.0, probability)
    lower, upper = stats.binom.cdf(count, draws, probability), stats.binom.sf(count - 1, draws, probability)
    return float(min(1.0, 2 * min(lower, upper)))


def smallest(p_values: Sequence[float]) -> float:
    """The smallest of several p-values, times their number (Bonferroni)."""
    return min(1.0, len(p_values) * min(p_values)) if p_values else 1.0


def mean_p_value(values: np.ndarray, mean: float) -> float:
    """Two-sided z-test that independent values have the given mean."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    if error == 0.0:
        return 1.0 if np.allclose(values.mean(), mean) else 0.0
    return float(2 * stats.norm.sf(abs(values.mean() - mean) / error))


def _counted(samples: np.ndarray) -> dict[tuple[int, ...], int]:
    """How often each row occurs."""
    if samples.shape[1] == 0:
        return {(): len(samples)}
    base = int(samples.max(initial=0)) + 1
    codes = np.zeros(len(samples), np.int64)
    for column in samples.T:
        codes = codes * base + column
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return {tuple(samples[i].tolist()): int(c) for i, c in zip(first, counts, strict=True)}
