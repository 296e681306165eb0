"""The score `inclusion` against counted visits, on a graph where vertices of a batch are nearly independent."""

import numpy as np
import pytest

import spsample as sp
from spsample.features import score

pytestmark = pytest.mark.statistical

NODES, DEGREE, EPOCHS = 3000, 12, 40

SAMPLERS = [
    sp.GraphSAGE([4, 3], layout="subgraph"),
    sp.GraphSAGE([4, 3], include_targets=False),
    sp.GraphSAGE([4, 3], replace=True, include_targets=False),
    sp.GraphSAGE([4]),
    sp.LADIES([24]),
    sp.LADIES([24, 48], include_targets=False),
    sp.LADIES([24, 48], law="squared_count", include_targets=False),
    sp.LADIES([24], replace=True),
    sp.FastGCN([24, 48]),
    sp.FastGCN([24, 48], replace=True),
]
"""Where targets draw again in the next layer they draw what they drew before: that is not independent."""


@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_counts_are_what_is_expected(sampler, kind):
    """Squared deviations of the counts are as large as those of independent batches, within the error of the model."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, NODES, (2, NODES * DEGREE))
    weights = rng.random(NODES * DEGREE).astype(np.float32) + 0.2 if kind == "weighted" else None
    graph = sp.Graph.from_edge_index(edges, num_nodes=NODES, edge_weight=weights)
    seeds = rng.permutation(NODES)[:600]
    counts = score("presc", graph, seeds, sampler, 6, epochs=EPOCHS)
    p, batches = score("inclusion", graph, seeds, sampler, 6), EPOCHS * 100
    others = np.setdiff1d(np.flatnonzero(p), seeds)  # a seed is in each epoch once
    deviations = (counts - batches * p)[others] / np.sqrt(batches * p * (1 - p))[others]
    assert 0.5 < (deviations**2).mean() < 1.1  # batches of an epoch share no seeds, so that counts vary less
    assert abs(deviations.mean()) < 0.25
