"""Samplers of one's own train as they say their layers are aggregated: by the mean, or by their values."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from own_samplers import NearUniform, OwnLayerwise, SumSampler  # noqa: E402

import spsample as sp  # noqa: E402
from spsample.data import Dataset, planted  # noqa: E402
from spsample.errors import DTypeError, InputError  # noqa: E402
from spsample.training import ModelConfig, TrainConfig, Trainer  # noqa: E402

NODES, DEGREE = 60, 10


def ring(weight=None):
    """Every vertex has ten in-neighbours: a tenth each, where rows are normalised."""
    targets = np.repeat(np.arange(NODES), DEGREE)
    sources = (targets + 1 + np.tile(np.arange(DEGREE), NODES)) % NODES
    weights = None if weight is None else np.full(len(targets), weight)
    graph = sp.Graph.from_edge_index(np.stack([sources, targets]), num_nodes=NODES, edge_weight=weights)
    x = np.random.default_rng(0).normal(size=(NODES, 4)).astype(np.float32)
    ids = np.arange(NODES)
    return Dataset("ring", graph, x, ids % 2, ids[:40], ids[40:50], ids[50:], 2)


def trainer(sampler, data, **settings):
    model = ModelConfig(hidden=8, dropout=0.0)
    return Trainer(data, sampler, model, TrainConfig(**{"epochs": 2, "batch_size": 8, **settings}))


def row_sums(trainer_):
    """Sums of the rows of every block that a pass trains on."""
    blocks = [trainer_.pipeline.setup.blocks(layer) for batch in trainer_.loader for layer in batch.layers]
    return torch.cat([block.aggregate(torch.ones(block.num_src, 1)).ravel() for block in blocks])


@pytest.mark.parametrize("weight", [None, 0.1, 3.0])
def test_an_own_node_wise_sampler_trains_on_the_mean(weight):
    sums = row_sums(trainer(NearUniform([1, 1]), ring(weight)))
    torch.testing.assert_close(sums, torch.ones(len(sums)))


@pytest.mark.parametrize("weight", [None, 0.1])
@pytest.mark.parametrize("sampler", [SumSampler([6]), OwnLayerwise([6])], ids=["with the base", "without it"])
def test_an_own_layerwise_sampler_trains_by_its_values(sampler, weight):
    """The sums of rows are 1 on average and not each, as they would be if the mean of the drawn were taken."""
    made = trainer(sampler, ring(weight), batch_size=4)
    sums = torch.cat([row_sums(made) for _ in range(60)])  # each pass is an epoch of its own
    assert float(sums.std()) > 0.1
    assert abs(float(sums.mean()) - 1) < 5 * float(sums.std()) / len(sums) ** 0.5


@pytest.mark.parametrize(
    ("own", "known"),
    [(NearUniform([3, 2]), sp.GraphSAGE([3, 2])), (OwnLayerwise([30, 20]), sp.LADIES([30, 20]))],
    ids=["node-wise", "layer-wise"],
)
def test_an_own_sampler_of_a_known_law_trains_like_the_known_one(own, known):
    data = planted(300, degree=10)
    losses = [[one.loss for one in trainer(sampler, data, batch_size=64).fit().history] for sampler in (own, known)]
    assert losses[0] == losses[1]


def test_another_aggregation_is_refused():
    class Wrong(NearUniform):
        aggregation = "sum"

    with pytest.raises(InputError, match=r"sampler\.aggregation: got 'sum'; expected one of 'mean', 'values'"):
        trainer(Wrong([1]), ring())


def test_a_sampler_that_is_not_whole_is_refused():
    class Silent(NearUniform):
        def __init__(self):
            pass

    class Forgetful(NearUniform):
        def layer(self, A, Q, draw, want):
            super().layer(A, Q, draw, want)

    graph = planted(NODES).graph
    with pytest.raises(InputError, match=r"sampler: got a Silent without sizes; expected Silent.__init__ to call"):
        sp.bulk_sample(graph, [0, 1], Silent(), batch_size=2)
    with pytest.raises(InputError, match="got a Silent without sizes"):
        Trainer(planted(NODES), Silent(), ModelConfig(hidden=4), TrainConfig(epochs=1))
    with pytest.raises(DTypeError, match=r"Forgetful.layer: got None .*expected a StackedLayer"):
        sp.bulk_sample(graph, [0, 1], Forgetful([2]), batch_size=2)
