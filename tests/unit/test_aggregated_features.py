"""Features that are aggregated once for all vertices."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.data import load_dataset, planted, save_dataset
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.features import aggregate_features
from spsample.nn.blocks import BlockMaker
from spsample.settings import ModelConfig
from spsample.store import to_scipy
from spsample.training import TrainConfig, Trainer, build_model

RNG = np.random.default_rng(2)
N, DIM = 70, 6


def graph(kind: str) -> sp.Graph:
    edges = RNG.integers(0, N - 5, (2, 400))  # the last have no neighbours
    made = sp.Graph.from_edge_index(edges, num_nodes=N, edge_weight=RNG.random(400) if kind == "weighted" else None)
    return made.normalized("row") if kind == "row" else made


@pytest.mark.parametrize("kind", ["unweighted", "weighted", "row"])
@pytest.mark.parametrize("budget", [1 << 12, "1GiB"])
def test_rows_are_the_sums(kind, budget):
    A, x = graph(kind), RNG.standard_normal((N, DIM)).astype(np.float32)
    dense = to_scipy(A).toarray()
    sums = dense.sum(axis=1, keepdims=True)
    mean = np.divide(dense @ x, sums, where=sums > 0, out=np.zeros_like(x, float))
    made = aggregate_features(A, x, memory_budget=budget)
    np.testing.assert_array_equal(made[:, :DIM], x)
    np.testing.assert_allclose(made[:, DIM:], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(made, aggregate_features(A, x))
    with_loops = dense + np.eye(N)
    root = 1 / np.sqrt(with_loops.sum(axis=1))
    np.testing.assert_allclose(
        aggregate_features(A, x, "gcn", memory_budget=budget),
        root[:, None] * with_loops * root @ x,
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("architecture", ["sage", "gcn"])
def test_a_model_gives_what_it_gives_with_whole_neighbourhoods(architecture):
    A, x = graph("unweighted"), RNG.standard_normal((N, DIM)).astype(np.float32)
    rows = aggregate_features(A, x, "mean" if architecture == "sage" else "gcn")
    whole = build_model(DIM, 3, 2, ModelConfig(architecture, hidden=8)).eval()
    model = build_model(rows.shape[1], 3, 1, ModelConfig(f"precomputed-{architecture}", hidden=8)).eval()
    first, linear = whole.convs[0].conv, model.encoder[1]
    with torch.no_grad():
        if architecture == "sage":
            linear.weight.copy_(torch.cat([first.root.weight, first.neighbours.weight], dim=1))
            linear.bias.copy_(first.root.bias)
        else:
            linear.weight.copy_(first.linear.weight)
            linear.bias.copy_(first.bias)
        model.convs[0].load_state_dict(whole.convs[1].state_dict())
    seeds = np.arange(0, N, 2)
    outputs = []
    for net, features, fanouts in ((whole, x, [3, -1]), (model, rows, [3])):
        sampler = sp.GraphSAGE(fanouts)
        batch = next(iter(sp.BulkLoader(A, seeds, sampler, batch_size=len(seeds), features=features, shuffle=False)))
        outputs.append(net(*BlockMaker(A, sampler).inputs(batch, net)))
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)


def test_training_on_a_store_of_the_command(tmp_path):
    save_dataset(planted(400), tmp_path / "plain")
    arguments = ["precompute", str(tmp_path / "plain"), "--out", str(tmp_path / "mean"), "--memory-budget", "64KiB"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    data = load_dataset(str(tmp_path / "mean"))
    assert data.x.shape == (400, 2 * planted(400).x.shape[1])
    trainer = Trainer(data, sp.GraphSAGE([5]), ModelConfig("precomputed-sage", hidden=8), TrainConfig(epochs=2))
    assert len(trainer.fit().history) == 2
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code != 0
    assert not list(tmp_path.glob(".spsample-*"))


def test_a_disk_without_room_is_refused_before_work(tmp_path, monkeypatch):
    def full(descriptor, offset, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    result = CliRunner().invoke(app, ["precompute", "planted:60", "--out", str(tmp_path / "mean")])
    assert "No space left on device" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"graph": None}, DTypeError, "graph"),
        ({"features": np.zeros((3, 2))}, InputError, "features"),
        ({"aggregation": "max"}, InputError, "aggregation"),
        ({"out": np.zeros((N, 2 * DIM))}, DTypeError, "out"),
        ({"out": np.zeros((N, DIM), np.float32)}, InputError, "out"),
        ({"out": [1.0]}, DTypeError, "out"),
        ({"out": np.broadcast_to(np.float32(0), (N, 2 * DIM))}, InputError, "out"),
        ({"graph": sp.Graph([0] + [2] * N, [0, 1], np.full(2, 3e38, np.float32))}, CapacityError, "graph"),
        ({"memory_budget": "x"}, InputError, "memory_budget"),
    ],
)
def test_what_is_refused(change, error, named):
    arguments = {"graph": graph("unweighted"), "features": np.zeros((N, DIM)), **change}
    with pytest.raises(error, match=named):
        aggregate_features(**arguments)


def test_a_residual_model_is_refused():
    with pytest.raises(InputError, match="residual"):
        build_model(4, 2, 1, ModelConfig("precomputed-sage", residual=True))
