"""Extreme rows: weights of 12 orders of magnitude, rows of zero, one and a million entries, the ends of [0, T)."""

from __future__ import annotations

from fractions import Fraction

import checks
import laws
import numpy as np
import pytest
from draws import KEY, hub, operand, repeated, row_draws

from spsample import LADIES, FastGCN, Graph, GraphSAGE, bulk_sample
from spsample.backends import Draw

pytestmark = pytest.mark.statistical

MILLION = 1_000_000
TWELVE_ORDERS = [
    ([1.0, 1e-3, 1e-6, 1e-9, 1e-12], 3),
    ([3e-12, 1.0, 1e-12, 2e-12], 2),  # after the large one only tiny weights are left to choose from
    ([3e-12, 1.0, 1e-12, 2e-12, 0.5], 3),
    ([1e-12, 1e-12, 1e-12, 7e-12, 1.0, 1e-6], 4),
]


@pytest.mark.parametrize(("weights", "size"), TWELVE_ORDERS)
def test_weights_of_twelve_orders_of_magnitude_in_one_row(backend, draws, weights, size):
    assert checks.weighted_row(backend, draws, weights, size) > laws.SMALLEST_P


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12, 1e-300, 1e300])
def test_rows_of_any_scale(backend, draws, scale):
    """Each row has its own exponent: how its weights compare with other rows' does not matter."""
    weights = np.array([1.0, 2.0, 5.0, 1.0])
    graph = Graph(
        np.array([0, 4, 8, 8, 8]), np.tile(np.arange(4, dtype=np.int32), 2), np.append(weights, weights * scale)
    )
    samples = row_draws(operand(graph, backend), repeated([0, 1], draws // 2), Draw(KEY, 0, 2))
    law = laws.successive([Fraction(w) for w in weights], 2)
    for row in (0, 1):
        assert laws.outcome_p_value(samples[row::2], law) > laws.SMALLEST_P


def test_tiny_and_zero_weights(backend):
    assert checks.tiny_weight_is_never_lost(backend, 0) == 1.0


@pytest.mark.parametrize(
    ("numerators", "size"),
    [
        ([1, 1], 1),
        ([2, 1, 1], 1),
        ([2, 1, 1], 2),
        ([1, 2, 3, 1], 1),
        ([1, 2, 3, 1], 3),
        ([3, 1, 1, 1, 2], 2),
        ([4, 1, 1, 1, 2], 4),
    ],
)
def test_every_boundary_of_the_column_law(backend, draws, numerators, size):
    """T of a few units: x = 0, x = T - 1 and all between are drawn, each boundary between columns is met."""
    assert checks.explicit_numerators(backend, draws, numerators, size) > laws.SMALLEST_P


@pytest.mark.parametrize(
    ("numerators", "size"),
    [([0, 0, 1, 0, 2, 0], 1), ([1, 0, 1, 1], 1), ([1, 0, 1, 1], 2), ([0, 3, 1, 2, 0], 2), ([2, 0, 0, 0, 1, 1, 5], 3)],
)
def test_every_boundary_of_a_shared_row(backend, draws, numerators, size):
    """Columns of numerator 0 lie at both ends and between, and are never drawn."""
    assert checks.shared_numerators(backend, draws, numerators, size) > laws.SMALLEST_P


@pytest.mark.parametrize(
    "numerators",
    [
        [2**30] * 3,  # T = 3 2^30, which rejects a quarter of all words
        [2**31, 2**31 - 1],
        [2**31, 2**31],  # the largest narrow total
        [2**31, 2**31 + 1],  # the smallest wide one
        [2**30, 2**31, 2**32],
        [2**60] * 3,  # 2^64 mod T = 2^60: a remainder would draw the first a ninth too often
        [2**60, 2**61, 2**60],  # T = 2^62, the largest of all
        [2**62 - 2**59, 2**59],
    ],
)
def test_large_totals(backend, draws, numerators):
    """Lemire's rejection: no bias at the totals where others have one (law, section 1)."""
    assert checks.large_total(backend, max(draws, 100_000), numerators) > laws.SMALLEST_P


@pytest.mark.parametrize("degree", [3 * 2**29, 3 * 2**30, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**32])
def test_rows_beyond_32_bits(backend, draws, degree):
    """Uniform rows of up to twelve billion entries (pages of zeros, never stored): thirds, and remainders by 3."""
    assert checks.fine_positions(backend, max(draws, 20_000), degree) > laws.SMALLEST_P


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_rows_of_no_and_one_entry(backend, weighted, replace):
    """Nothing from an empty row; the one entry of another, s times with replacement."""
    graph = Graph(np.array([0, 0, 1]), np.array([0], np.int32), np.array([0.3]) if weighted else None)
    for seeds, count in (([0], 0), ([1], 3 if replace else 1), ([0, 1], 3 if replace else 1)):
        bulk = bulk_sample(
            graph, seeds, GraphSAGE([3], replace=replace, include_targets=False), batch_size=2, backend=backend.name
        )
        assert bulk[0].layers[0].adj.nnz == count
        assert bulk[0].src_nodes.tolist() == [0] * (count > 0)


@pytest.mark.parametrize("sampler", [LADIES([3]), LADIES([3], law="squared_count"), FastGCN([3])])
def test_layer_of_one_entry(backend, sampler):
    """The one edge is kept, with its own weight."""
    graph = Graph(np.array([0, 0, 1]), np.array([0], np.int32), np.array([0.25], np.float32))
    bulk = bulk_sample(graph, [1], sampler, batch_size=1, backend=backend.name)
    assert bulk[0].layers[0].adj.data.tolist() == [0.25]
    assert bulk[0].src_nodes.tolist() == [1, 0]


def test_million_entries_uniform(backend, draws):
    """Positions fall evenly into bins, without and with replacement."""
    A = operand(hub(MILLION), backend)
    for replace in (False, True):
        size = 5000 if not replace and backend.name == "cpu" else 1000
        x = row_draws(A, repeated([0], 10), Draw(KEY, 0, size, replace))
        counts = np.bincount(x.ravel() // 20_000, minlength=50)
        assert laws.cells_p_value([(int(c), x.size / 50) for c in counts]) > laws.SMALLEST_P


def test_million_entries_weighted(backend):
    """A million weights of a few values: bins of equal weight, and each value in proportion."""
    weights = np.array([1.0, 2.0, 5.0, 0.0] * (MILLION // 4))
    weights[: MILLION // 2] *= 3.0
    A = operand(hub(MILLION, weights), backend)
    x = row_draws(A, repeated([0], 4), Draw(KEY, 0, 2000, True)).ravel()
    assert (weights[x] > 0).all()
    groups = 4 * (x // 50_000) + x % 4
    expected = np.bincount(4 * (np.arange(MILLION) // 50_000) + np.arange(MILLION) % 4, weights=weights)
    seen = np.bincount(groups, minlength=80)
    cells = [(int(c), e / weights.sum() * x.size) for c, e in zip(seen, expected, strict=True) if e > 0]
    assert laws.cells_p_value(cells) > laws.SMALLEST_P


def test_first_and_last_of_a_million_are_reached(backend):
    """Half of a long row in each of 24 batches: both ends are in about half of them."""
    degree, size = (MILLION, MILLION // 2) if backend.name == "cpu" else (4000, 2000)
    x = row_draws(operand(hub(degree), backend), repeated([0], 24), Draw(KEY, 0, size))
    for end in (0, degree - 1):
        assert laws.binomial_p_value(int((x == end).any(axis=1).sum()), 24, 0.5) > laws.SMALLEST_P


def test_million_columns(backend):
    """The column law on a shared row of a million columns: bins in proportion, whatever the size of the draw."""
    N = np.arange(1, MILLION + 1, dtype=np.uint64)
    sample = backend.draw_shared(np.cumsum(N), np.arange(3, dtype=np.int64), Draw(KEY, 0, 2000))
    counts = np.bincount(sample.columns // 50_000, minlength=20)
    expected = N.reshape(20, -1).sum(axis=1) / N.sum()
    assert sample.counts.max() == 1
    assert laws.cells_p_value([(int(c), e * 6000) for c, e in zip(counts, expected, strict=True)]) > laws.SMALLEST_P
