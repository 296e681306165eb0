"""reference = cpu on every real graph, for every law; few and small batches, because the reference is slow."""

from __future__ import annotations

import numpy as np
import pytest
from equality import assert_bulks_same, every_sampler, needs_cpu, threads

import spsample as sp

pytestmark = [pytest.mark.realdata, needs_cpu]

NAMES = ["planetoid_cora", "planetoid_citeseer", "musae_facebook", "tolokers", "topo_ego_twitter", "topo_cnr2000"]


@pytest.fixture(scope="module", params=NAMES)
def graph(request, data_dir):
    path = data_dir / f"{request.param}.npz"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    with np.load(path) as arrays:
        return sp.Graph(arrays["indptr"], arrays["indices"])


def weighted(graph):
    """Weights over 12 orders of magnitude."""
    rng = np.random.default_rng(1)
    weights = rng.exponential(size=graph.num_edges) * 10.0 ** rng.integers(-12, 1, graph.num_edges)
    return sp.Graph(graph.indptr, graph.indices, weights)


def check(graph, samplers):
    """A bulk of three batches by the reference, against the compiled one on 1, 2 and 4 threads."""
    seeds = np.random.default_rng(0).integers(0, graph.num_nodes, 3 * 48)
    for sampler in samplers:
        options = {"batch_size": 48, "random_seed": 7, "edge_ids": True}
        reference = sp.bulk_sample(graph, seeds, sampler, backend="reference", **options)
        for count in (1, 2, 4):
            with threads(count):
                assert_bulks_same(reference, sp.bulk_sample(graph, seeds, sampler, backend="cpu", **options))


def affordable(graph):
    """All samplers; on the largest graph those that do not look at every row (the reference takes 10 s to do so)."""
    samplers = every_sampler()
    return samplers if graph.num_nodes < 300_000 else [s for s in samplers if isinstance(s, sp.GraphSAGE)]


def test_unweighted(graph):
    check(graph, every_sampler())


def test_row_normalized(graph):
    check(graph.normalized("row"), affordable(graph))


def test_weighted(graph):
    check(weighted(graph), affordable(graph))
