"""The mean of the default values' estimate is the full aggregation (law, section 6): by enumeration and by z-test."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import checks
import laws
import numpy as np
import pytest
from checks import SAMPLERS, WEIGHTINGS
from draws import KEY, operand

from spsample import LADIES, FastGCN, Graph, bulk_sample
from spsample.backends import Draw, available_backends
from spsample.store import to_scipy

pytestmark = pytest.mark.statistical

NODES, BATCHES, SEEDS = 2000, 800, 24
LAYERWISE = {
    "norm": lambda sizes, **options: LADIES(sizes, law="norm", **options),
    "squared_count": lambda sizes, **options: LADIES(sizes, law="squared_count", **options),
    "fastgcn": FastGCN,
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("include_targets", [True, False])
@pytest.mark.parametrize("draw", [(1, False), (2, False), (3, False), (7, False), (1, True), (3, True)])
def test_exact_mean(backend, sampler, weighting, include_targets, draw):
    """E[A^l] = A, summed over every outcome; size 7 takes the support whole."""
    assert checks.small_estimate_is_unbiased(backend, 0, sampler, weighting, draw, include_targets) == 1.0


@pytest.mark.parametrize("weights", [[1, 1, 1], [1, 2, 3, 4], [2**61, 1, 3, 2**20], [1, 2**40, 2**61]])
@pytest.mark.parametrize("size", [1, 2])
def test_exact_mean_of_des_raj(weights, size):
    """The estimator itself in rational arithmetic: E[c_v] = 1 for every v, as the law states c."""
    law = laws.successive(weights, size)
    total = sum(weights)
    for v in range(len(weights)):
        c = {}
        for drawn in law:
            r = drawn.index(v) if v in drawn else None
            rest = 0 if r is None else total - sum(weights[u] for u in drawn[:r])
            c[drawn] = Fraction(0) if r is None else (Fraction(rest, weights[v]) + size - r - 1) / size
        assert laws.expectation(law, c) == 1


def test_reference_values_are_biased():
    """What the law page says of values="reference", so that the test above means something."""
    graph = checks.small_graph("unweighted")
    bulk = bulk_sample(graph, checks.FRONTIER * 4000, LADIES([2], values="reference"), batch_size=4)
    layer = bulk.layers[0]
    row_sums = np.add.reduceat(layer.data, layer.entry_ranges.begin[layer.entry_ranges.size > 0])
    assert laws.mean_p_value(row_sums, 10.0) < 1e-12  # three rows of 1, 5 and 4 edges


@cache
def power_law_graph(weighting: str) -> Graph:
    """2000 vertices with in- and out-degrees of a heavy tail, empty rows and parallel edges."""
    rng = np.random.default_rng(17)
    edges = (NODES * rng.random((2, 12 * NODES)) ** 3).astype(np.int64)
    weights = rng.lognormal(0.0, 1.5, edges.shape[1]) if weighting == "weighted" else None
    graph = Graph.from_edge_index(edges[::-1], num_nodes=NODES, edge_weight=weights)
    return graph.normalized("row") if weighting == "row" else graph


def estimates(bulk, x, g):
    """(k,) sum over the seeds of g_i (A^1 ... A^L x)_i of every batch."""
    values = None
    for layer in bulk.layers:
        batch = np.repeat(np.arange(len(bulk)), layer.entry_ranges.size)
        source = layer.src_ranges.begin[batch] + layer.indices
        lengths = np.concatenate([np.diff(layer.indptr[layer.indptr_ranges[i]]) for i in range(len(bulk))])
        row = np.repeat(np.arange(len(lengths)), lengths)
        inputs = x[layer.src] if values is None else values
        values = np.bincount(row, weights=layer.data * inputs[source], minlength=len(lengths))
    return (values.reshape(len(bulk), -1) * g).sum(axis=1)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("include_targets", [True, False])
def test_mean_on_a_large_graph(sampler, weighting, replace, include_targets):
    """z-test of one random functional of two layers' aggregation, A A x, over many batches with the same seeds."""
    if "cpu" not in available_backends():
        pytest.skip("the reference would take minutes")
    rng = np.random.default_rng(3)
    graph = power_law_graph(weighting)
    seeds = rng.choice(NODES, SEEDS, replace=False)
    x, g = rng.uniform(0.5, 1.5, NODES), rng.uniform(0.5, 1.5, SEEDS)
    A = to_scipy(graph).astype(np.float64)
    if weighting == "row":
        A.data = 1.0 / np.repeat(graph.in_degrees(), graph.in_degrees())
    program = LAYERWISE[sampler]([400, 300], replace=replace, include_targets=include_targets)
    bulk = bulk_sample(graph, np.tile(seeds, BATCHES), program, batch_size=SEEDS, random_seed=11)
    full = float(g @ (A @ (A @ x))[seeds])
    found = estimates(bulk, x, g)
    assert found.std() > 0
    assert laws.mean_p_value(found, full) > laws.SMALLEST_P
    assert abs(found.mean() / full - 1) < 0.1  # the error is small enough to see a bias


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("ratio", [1e12, 1e30])
def test_weights_of_twelve_orders_of_magnitude_between_rows(backend, sampler, size, ratio):
    """The small row's numerators may be raised to 1: its estimate stays unbiased, and its support whole."""
    weights = np.array([1.0, 2.0, 1.5, 1.0 / ratio, 3.0 / ratio, 2.0 / ratio])
    A = operand(Graph(np.array([0, 3, 6, 6, 6, 6, 6]), np.arange(6, dtype=np.int32), weights), backend)
    assert all(checks.drawn_numerators(A, [0, 1], sampler))
    assert checks.estimate_is_unbiased(A, [0, 1], sampler, Draw(KEY, 0, size), True) == 1.0
