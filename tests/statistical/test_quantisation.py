"""From weights to integers: the rules and bounds of the law's section 2, in rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from draws import operand

from spsample import CSRMatrix, Graph
from spsample.backends import QuantisationRule, StackedSelector
from spsample.sparse import normalize_rows
from spsample.sparse.probability import frontier_rule

pytestmark = pytest.mark.statistical

RNG = np.random.default_rng(23)


def spread(count: int, orders: float) -> np.ndarray:
    """Weights over so many orders of magnitude."""
    return 10.0 ** RNG.uniform(-orders / 2, orders / 2, count)


ROWS = {
    "one": np.array([0.3]),
    "near": spread(100, 1),
    "six orders": spread(63, 6),
    "twelve orders": spread(64, 12),
    "twelve orders, long": spread(5000, 12),
    "thirty orders": spread(65, 30),
    "all magnitudes": np.ldexp(RNG.random(50) + 0.5, RNG.integers(-1070, 1020, 50)),
    "integers": RNG.integers(1, 100, 40).astype(float),
    "powers of two": np.ldexp(1.0, np.arange(-20, 11)),
    "subnormal": np.array([5e-324, 1e-323, 3e-310]),
    "one large, many small": np.append(1.0, np.full(1000, 1.49 * 2.0**-51)),
    "zeros": np.array([0.0, 2.0, 0.0, 1.0]),
}
rows = pytest.mark.parametrize("weights", ROWS.values(), ids=ROWS.keys())


def bits(count: int) -> int:
    """Smallest b with 2^b >= count."""
    return next(b for b in range(64) if 2**b >= count)


def row_rule(weights: np.ndarray) -> list[int]:
    """N of a row under the row rule."""
    indptr = np.array([0, len(weights)])
    P = normalize_rows(CSRMatrix(indptr, np.arange(len(weights)), weights, (1, len(weights)))).matrix
    N = [0] * len(weights)
    for column, numerator in zip(P.columns, P.numerators, strict=True):
        N[column] = int(numerator)
    assert sum(N) == int(P.totals[0])
    return N


def frontier_numerators(backend, weights: np.ndarray, a: int) -> tuple[list[int], int, int]:
    """N of each entry of a frontier (two rows, no column twice), its K and its number of entries M."""
    n, half = len(weights), (len(weights) + 1) // 2
    A = operand(Graph(np.array([0, half] + [n] * (n - 1)), np.arange(n, dtype=np.int32), weights), backend)
    frontier = min(n, 2)
    Q = StackedSelector(np.array([0, frontier]), np.arange(frontier, dtype=np.int32), np.array([0]))
    F = A.frontier(Q)
    totals = F.row_statistics
    rule = frontier_rule("weighted", F.batch_statistics, a, 1)
    P = F.merge_columns(rule)
    N = np.zeros(n, np.uint64)
    N[P.columns] = P.numerators
    return [int(v) for v in N], int(rule.shifts[0]), int(totals.counts.sum())


@rows
def test_positive_stays_positive_and_zero_stays_zero(weights):
    N = row_rule(weights)
    assert [numerator > 0 for numerator in N] == [w > 0 for w in weights]


@rows
def test_totals_of_rows(weights):
    """T <= 2^32 (narrow) or 2^62 (wide), and narrow rows are those that the law says."""
    N, positive = row_rule(weights), [Fraction(w) for w in weights if w > 0]
    K = 32 - int(np.frexp(weights.max())[1]) - bits(len(positive))
    scaled = [w * Fraction(2) ** K for w in positive]
    narrow = min(scaled) >= 2**11 or all(x.denominator == 1 for x in scaled)
    assert sum(N) <= (2**32 if narrow else 2**62)
    exact = [Fraction(w) * Fraction(2) ** (K if narrow else K + 30) for w in weights]
    assert [max(1, round(x)) if x else 0 for x in exact] == N  # Fractions too round half to even


@rows
def test_bound_of_the_row_rule(weights):
    """Narrow: within 2^-12, or exact. Wide: within r 2^(log2 D - 62) where that is below 1/2.

    Smaller weights are raised, to w_max 2^(log2 D - 61) at most.
    """
    N, positive = row_rule(weights), [Fraction(w) for w in weights if w > 0]
    L, w_max = bits(len(positive)), max(positive)
    E = int(np.frexp(weights.max())[1])
    narrow = all(
        abs(n - Fraction(w) * Fraction(2) ** (32 - E - L)) <= Fraction(1, 2) for n, w in zip(N, weights, strict=True)
    )
    unit = Fraction(2) ** -((32 if narrow else 62) - E - L)  # the weight that a numerator of 1 stands for
    for n, w in zip(N, map(Fraction, weights), strict=True):
        if w == 0:
            continue
        bound = Fraction(1, 2**12) if narrow else w_max / w * Fraction(2) ** (L - 62)
        if bound < Fraction(1, 2):
            assert abs(n * unit / w - 1) <= bound
        else:
            assert n * unit <= w_max * Fraction(2) ** (L - 61)


@rows
def test_bound_of_row_probabilities(weights):
    """A probability is off by its numerator's relative error e and the total's t: by (e + t) / (1 - t) at most.

    Narrow: e = t = 2^-12. Wide: no numerator moves by a whole unit and the largest is at least 2^(61 - log2 D), hence
    t = D 2^(log2 D - 61).
    """
    N, W = row_rule(weights), [Fraction(w) for w in weights]
    D, w_max, T, total = sum(w > 0 for w in W), max(W), sum(N), sum(W)
    L, narrow = bits(D), T <= 2**32
    t = Fraction(1, 2**12) if narrow else D * Fraction(2) ** (L - 61)
    for n, w in zip(N, W, strict=True):
        if w == 0:
            continue
        e = Fraction(1, 2**12) if narrow else w_max / w * Fraction(2) ** (L - 62)
        if e < Fraction(1, 2):
            assert abs(n * total / (w * T) - 1) <= (e + t) / (1 - t)


@rows
@pytest.mark.parametrize("a", [1, 2])
def test_numerators_of_the_frontier_rule(backend, weights, a):
    """K = 62 - a E - log2 M, N = max(1, rint(m^a 2^(a e + K))), m^2 rounded to binary64 once; at most 2^62 in all."""
    N, K, M = frontier_numerators(backend, weights, a)
    assert 62 - a * int(np.frexp(weights.max())[1]) - bits(M) == K
    assert sum(N) <= 2**62
    for n, w in zip(N, weights, strict=True):
        m, e = np.frexp(w)
        power = Fraction(float(m * m)) if a == 2 else Fraction(float(m))
        assert n == (max(1, round(power * Fraction(2) ** (a * int(e) + K))) if w else 0)


@rows
@pytest.mark.parametrize("a", [1, 2])
def test_bound_of_the_frontier_rule(backend, weights, a):
    """Within r^a 2^(log2 M - 63 + a) of w^a (2^-53 more where m^2 is rounded), where that is below 1/2."""
    N, K, M = frontier_numerators(backend, weights, a)
    w_max = Fraction(weights.max())
    for n, w in zip(N, map(Fraction, weights), strict=True):
        if w == 0:
            continue
        bound = (w_max / w) ** a * Fraction(2) ** (bits(M) - 63 + a)
        if bound < Fraction(1, 2):
            assert abs(n / Fraction(2) ** K / w**a - 1) <= bound + (a - 1) * Fraction(1, 2**53)


def test_column_power_two_keeps_squares_below_2_62(backend):
    """H = 31: the squares of merged columns add up within 2^62."""
    weights = spread(3000, 6)
    A = operand(
        Graph(np.array([0, 3000] + [3000] * 1499), np.repeat(np.arange(1500, dtype=np.int32), 2), weights), backend
    )
    Q = StackedSelector(np.array([0, 1]), np.array([0], np.int32), np.array([0]))
    F = A.frontier(Q)
    rule = frontier_rule("weighted", F.batch_statistics, 1, 2)
    P = F.merge_columns(rule)
    assert isinstance(rule, QuantisationRule)
    assert int(P.totals[0]) == sum(int(n) for n in P.numerators) <= 2**62
    K = int(rule.shifts[0])
    first = sum(max(1, round(Fraction(w) * Fraction(2) ** K)) for w in weights[:2])
    assert int(P.numerators[0]) == first**2
