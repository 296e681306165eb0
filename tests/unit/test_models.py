"""Blocks, models, full evaluation and metrics against dense computations."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import spsample as sp  # noqa: E402
from spsample.data import planted  # noqa: E402
from spsample.errors import InputError  # noqa: E402
from spsample.features import FeatureStore  # noqa: E402
from spsample.training import ModelConfig, TrainConfig, Trainer, build_model, full_logits  # noqa: E402
from spsample.training.blocks import full_rows, mean_block, value_block  # noqa: E402
from spsample.training.metrics import accuracy, roc_auc  # noqa: E402
from spsample.training.models import MODELS, GraphConv  # noqa: E402

INDPTR = np.array([0, 2, 2, 5])
INDICES = np.array([1, 3, 0, 3, 3], dtype=np.int32)
DATA = np.array([1.0, 3.0, 0.5, 0.5, 1.0])


def adj(data=None):
    return SimpleNamespace(indptr=INDPTR, indices=INDICES, data=data, shape=(3, 4))


def dense(values):
    matrix = np.zeros((3, 4))
    np.add.at(matrix, (np.repeat(np.arange(3), np.diff(INDPTR)), INDICES), values)
    return matrix


MEAN = [0.5, 0.5, 1 / 3, 1 / 3, 1 / 3]
WEIGHTED_MEAN = [0.25, 0.75, 0.25, 0.25, 0.5]


@pytest.mark.parametrize(
    ("block", "values"),
    [
        (mean_block(adj()), MEAN),
        (mean_block(adj(DATA)), WEIGHTED_MEAN),
        (value_block(adj(DATA)), DATA),
        (value_block(adj()), np.ones(5)),
    ],
)
def test_block_is_the_matrix(block, values):
    h = torch.randn(4, 6, requires_grad=True)
    result = block.aggregate(h)
    matrix = torch.from_numpy(dense(values)).float()
    assert torch.allclose(result, matrix @ h, atol=1e-6)
    weight = torch.randn(3, 6)
    (gradient,) = torch.autograd.grad((result * weight).sum(), h)
    assert torch.allclose(gradient, matrix.T @ weight, atol=1e-6)


def test_block_without_entries():
    empty = SimpleNamespace(indptr=np.zeros(4, dtype=np.int64), indices=INDICES[:0], data=None, shape=(3, 0))
    assert mean_block(empty).aggregate(torch.empty(0, 2)).tolist() == [[0, 0]] * 3


def test_rows_of_zero_weight_give_zero():
    block = mean_block(adj(np.array([0.0, 0.0, 1.0, 1.0, 2.0])))
    assert block.aggregate(torch.ones(4, 1)).ravel().tolist() == [0.0, 0.0, 1.0]


def test_read_only_arrays_raise_no_warning(recwarn):
    arrays = [array.copy() for array in (INDPTR, INDICES.astype(np.int64), DATA.astype(np.float32))]
    for array in arrays:
        array.flags.writeable = False
    value_block(SimpleNamespace(indptr=arrays[0], indices=arrays[1], data=arrays[2], shape=(3, 4)))
    assert not recwarn.list


def test_full_rows_of_a_graph():
    edge_index = np.array([[1, 2, 2, 0], [0, 0, 1, 2]])
    graph = sp.Graph.from_edge_index(edge_index, num_nodes=3, edge_weight=np.array([1.0, 3.0, 5.0, 2.0]))
    plain = sp.Graph.from_edge_index(edge_index, num_nodes=3)
    h = torch.eye(3)

    def rows(which, start, stop, aggregation):
        return full_rows(which, start, stop, aggregation).aggregate(h).tolist()

    assert rows(plain, 0, 2, "mean") == [[0, 0.5, 0.5], [0, 0, 1]]
    assert rows(plain.normalized("row"), 0, 2, "values") == [[0, 0.5, 0.5], [0, 0, 1]]
    assert rows(plain, 0, 1, "values") == [[0, 1, 1]]
    assert rows(graph, 0, 1, "mean") == [[0, 0.25, 0.75]]
    assert rows(graph, 1, 3, "values") == [[0, 0, 5], [2, 0, 0]]


@pytest.mark.parametrize(("in_dim", "out_dim"), [(5, 3), (3, 5), (4, 4)])
def test_convolution_is_its_formula(in_dim, out_dim):
    conv = GraphConv(in_dim, out_dim)
    block = mean_block(adj())
    h = torch.randn(4, in_dim)
    expected = conv.root(h[:3]) + conv.neighbours(block.aggregate(h))
    assert torch.allclose(conv(h, block), expected, atol=1e-6)


@pytest.mark.parametrize("architecture", sorted(MODELS))
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_full_evaluation_equals_a_full_minibatch(architecture, num_layers):
    data = planted(120, degree=4)
    model = build_model(4, 4, num_layers, ModelConfig(architecture, hidden=8, dropout=0.5))
    features = FeatureStore(data.x)
    bulk = sp.bulk_sample(data.graph, [5, 60, 7], sp.GraphSAGE([-1] * num_layers), batch_size=3)
    batch = bulk[0]
    model.eval()
    x = torch.from_numpy(features.gather(batch.src_nodes))
    sampled = model(x, [mean_block(layer.adj) for layer in batch.layers]).detach().numpy()
    model.train()
    for chunk_size in (7, 1000):
        logits = full_logits(model, data.graph, features, "mean", chunk_size=chunk_size)
        assert logits.shape == (120, 4)
        assert np.allclose(logits[[5, 60, 7]], sampled, atol=1e-5)
    assert model.training


def test_layerwise_values_estimate_the_mean():
    """With room for every vertex the layer-wise samplers give the full aggregation."""
    data = planted(80, degree=5)
    h = torch.from_numpy(data.x)
    exact = full_rows(data.graph, 0, 80, "mean").aggregate(h)
    for sampler in (sp.LADIES([80]), sp.FastGCN([80])):
        batch = sp.bulk_sample(data.graph.normalized("row"), np.arange(80), sampler, batch_size=80)[0]
        block = value_block(batch.layers[0].adj)
        assert torch.allclose(block.aggregate(h[batch.src_nodes]), exact, atol=1e-6)


def test_unknown_architecture():
    with pytest.raises(InputError, match="architecture: got 'other'"):
        ModelConfig("other")


# ---- metrics


def test_roc_auc_against_pairs():
    rng = np.random.Generator(np.random.Philox(0))
    y = rng.integers(0, 2, 60)
    score = np.round(rng.random(60), 1)  # ties
    positive, negative = score[y == 1][:, None], score[y == 0]
    expected = ((positive > negative) + 0.5 * (positive == negative)).mean()
    assert roc_auc(np.stack([-score / 2, score / 2], axis=1), y) == pytest.approx(expected)


def test_roc_auc_against_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.Generator(np.random.Philox(1))
    y, logits = rng.integers(0, 2, 500), rng.standard_normal((500, 2)).astype(np.float32)
    assert roc_auc(logits, y) == pytest.approx(metrics.roc_auc_score(y, logits[:, 1] - logits[:, 0]))


@pytest.mark.parametrize(("classes", "y"), [(3, [0, 1, 2]), (2, [1, 1, 1]), (2, [0, 0, 0])])
def test_roc_auc_needs_two_classes(classes, y):
    with pytest.raises(InputError, match=r"^metric: got 'roc_auc'"):
        roc_auc(np.zeros((3, classes)), np.array(y))


def test_accuracy():
    assert accuracy(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.array([0, 1, 1])) == pytest.approx(2 / 3)


# ---- trainer


def train(sampler, data=None, **settings):
    config = TrainConfig(**{"epochs": 3, "batch_size": 64, "learning_rate": 0.02, **settings})
    return Trainer(data or planted(400, degree=5), sampler, ModelConfig(hidden=16, dropout=0.2), config)


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([5, 3]), sp.LADIES([64, 64]), sp.FastGCN([64, 64])])
def test_training_is_reproducible_for_any_bulk_size(sampler):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first, second = (train(sampler, bulk_size=size).fit() for size in (1, 8))
    assert [record.loss for record in first.history] == [record.loss for record in second.history]
    assert first.history[-1].loss < first.history[0].loss
    assert (first.val, first.test) == (second.val, second.test)
    assert torch.equal(before, torch.random.get_rng_state())


def test_best_weights_are_restored():
    trainer = train(sp.GraphSAGE([5]), epochs=6, eval_every=2)
    result = trainer.fit()
    evaluated = [record for record in result.history if record.val is not None]
    assert [record.epoch for record in evaluated] == [1, 3, 5]
    assert result.val == max(record.val for record in evaluated)
    assert result.val == trainer.evaluate()["val"]
    assert result.best_epoch in (1, 3, 5)
    assert set(result.seconds) == {"sampling", "features", "waiting", "training", "evaluation"}
    assert result.as_dict()["history"][0]["epoch"] == 0


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"epochs": 0}, "epochs"),
        ({"eval_every": 0}, "eval_every"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"weight_decay": -1.0}, "weight_decay"),
    ],
)
def test_bad_settings(settings, argument):
    with pytest.raises(InputError) as caught:
        TrainConfig(**settings)
    assert caught.value.argument == argument


def test_a_sampler_without_targets_is_refused():
    with pytest.raises(InputError, match="include_targets=True"):
        train(sp.GraphSAGE([3], include_targets=False))


def test_divergence_is_an_error():
    with pytest.raises(InputError, match="learning_rate"):
        train(sp.GraphSAGE([3, 3]), learning_rate=1e30, epochs=5).fit()
