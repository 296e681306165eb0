"""The row law (GraphSAGE) against exact enumeration (law, section 3)."""

from __future__ import annotations

from fractions import Fraction

import checks
import laws
import numpy as np
import pytest
from draws import KEY, hub, operand, repeated, row_draws

from spsample import Graph, GraphSAGE, bulk_sample
from spsample.backends import Draw

pytestmark = pytest.mark.statistical

WEIGHTS = [[1.0, 2.0, 3.0], [5.0, 1.0, 1.0, 3.0, 1.0], [1.0, 10.0, 100.0, 1000.0], [0.1, 0.7, 0.3, 0.2, 0.9, 0.4, 0.6]]


@pytest.mark.parametrize(("degree", "size"), [(2, 1), (7, 1), (3, 2), (6, 2), (4, 3), (7, 3), (5, 4), (7, 4)])
def test_uniform_without_replacement(backend, draws, degree, size):
    assert checks.uniform_row(backend, draws, degree, size) > laws.SMALLEST_P


@pytest.mark.parametrize(("degree", "size"), [(2, 1), (7, 3), (5, 4)])
def test_the_sets_that_floyd_chooses_are_uniform(degree, size):
    """The law's order is Floyd's, but each set of positions is exactly as likely as any other."""
    assert len(set(laws.sets_of(laws.floyd(degree, size)).values())) == 1


@pytest.mark.parametrize(("degree", "size"), [(1, 2), (3, 1), (5, 3), (2, 4)])
def test_uniform_with_replacement(backend, draws, degree, size):
    assert checks.uniform_row_with_replacement(backend, draws, degree, size) > laws.SMALLEST_P


@pytest.mark.parametrize(
    ("weights", "size"),
    [(weights, size) for weights in WEIGHTS for size in (1, 2, 3, 4) if size < len(weights)],
    ids=lambda value: str(value if isinstance(value, int) else len(value)),
)
def test_weighted_without_replacement(backend, draws, weights, size):
    assert checks.weighted_row(backend, draws, weights, size) > laws.SMALLEST_P


@pytest.mark.parametrize("weights", WEIGHTS[:3], ids=len)
@pytest.mark.parametrize("size", [1, 3])
def test_weighted_with_replacement(backend, draws, weights, size):
    assert checks.weighted_row_with_replacement(backend, draws, weights, size) > laws.SMALLEST_P


def test_weights_are_ignored_on_request(backend, draws):
    """weighted=False draws uniformly from a weighted graph."""
    A = operand(hub(5, [1.0, 1e6, 3.0, 1e-6, 2.0]), backend)
    samples = row_draws(A, repeated([0], draws), Draw(KEY, 0, 2), uniform=True)
    assert laws.outcome_p_value(samples, laws.floyd(5, 2)) > laws.SMALLEST_P


def test_parallel_edges_are_distinct_entries(backend, calls):
    """Node-wise calls choose entries: two of one edge's copies may be drawn, each as likely as any other entry."""
    graph = Graph(np.array([0, 5, 5, 5]), np.array([0, 1, 1, 1, 2], np.int32))
    bulk = bulk_sample(graph, [0] * calls, GraphSAGE([2]), batch_size=1, edge_ids=True, backend=backend.name)
    entries = bulk.layers[0].edge_ids.reshape(calls, 2)
    assert laws.outcome_p_value(entries, laws.floyd(5, 2)) > laws.SMALLEST_P
    columns = bulk.layers[0].src[bulk.layers[0].src_ranges.begin.repeat(2) + bulk.layers[0].indices].reshape(calls, 2)
    assert np.array_equal(columns, graph.indices[entries])
    assert (columns[:, 0] == columns[:, 1]).any()


def test_the_public_call_draws_by_the_weights(backend, calls):
    """bulk_sample from end to end: frequencies of single neighbours, with batch ids that do not start at 0."""
    weights = [3.0, 1.0, 4.0, 1.5]
    bulk = bulk_sample(
        hub(4, weights), [0] * calls, GraphSAGE([2]), batch_size=1, first_batch=77, edge_ids=True, backend=backend.name
    )
    law = laws.successive([Fraction(w) for w in weights], 2)
    assert laws.outcome_p_value(bulk.layers[0].edge_ids.reshape(calls, 2), law) > laws.SMALLEST_P


def test_duplicate_seeds_are_drawn_once(backend):
    """A seed repeated in its batch is one row; the same seed in another batch is drawn anew."""
    bulk = bulk_sample(
        hub(5), [0, 3, 0, 0, 3, 0] * 40, GraphSAGE([2]), batch_size=6, edge_ids=True, backend=backend.name
    )
    for mb in bulk:
        assert mb.seeds.tolist() == [0, 3]
        assert mb.seed_inverse.tolist() == [0, 1, 0, 0, 1, 0]
        assert mb.layers[0].adj.nnz == 2
    assert len({tuple(mb.layers[0].edge_ids) for mb in bulk}) > 10


@pytest.mark.parametrize(("weighted", "replace"), [(False, False), (False, True), (True, True)])
def test_mean_of_the_drawn_is_the_mean_of_the_row(backend, draws, weighted, replace):
    """The mean over drawn neighbours estimates the row's mean without bias; so it is for weights with replacement."""
    rng = np.random.default_rng(5)
    weights = rng.uniform(0.1, 2.0, 30) if weighted else None
    x = rng.normal(size=30)
    entries = row_draws(operand(hub(30, weights), backend), repeated([0], draws), Draw(KEY, 0, 8, replace))
    assert laws.mean_p_value(x[entries].mean(axis=1), np.average(x, weights=weights)) > laws.SMALLEST_P
