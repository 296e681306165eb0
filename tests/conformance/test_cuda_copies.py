"""Batches that are copied to a device, beside what is made on one, on the emulated device."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler

import spsample as sp
from spsample.errors import InputError

pytest.importorskip("torch")
pytestmark = needs_compiler
__all__ = ["emulated"]

SAMPLER = sp.GraphSAGE([4, 3])


@pytest.fixture(scope="module")
def graph():
    return sp.load_dataset("rmat:9,6").graph


@pytest.mark.parametrize("fetch", ["batch", "bulk"])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_rows_that_a_device_gathers_stay_as_they_are(emulated, graph, fetch, prefetch):
    x = np.random.default_rng(0).normal(size=(graph.num_nodes, 6)).astype(np.float32)
    options = {"batch_size": 32, "labels": np.arange(graph.num_nodes), "prefetch": prefetch, "fetch": fetch}
    features = sp.DeviceFeatures(x, 1.0)
    host = sp.BulkLoader(graph, np.arange(300), SAMPLER, features=x, **options)
    copied = sp.BulkLoader(graph, np.arange(300), SAMPLER, features=features, device="cpu", **options)
    for batch, other in zip(host, copied, strict=True):
        assert emulated.owns(other.x)
        np.testing.assert_array_equal(batch.x, emulated.to_host(other.x))
        np.testing.assert_array_equal(batch.y, other.y.numpy())
        np.testing.assert_array_equal(batch.src_nodes, other.src_nodes.numpy())


def test_batches_that_are_made_on_a_device_are_not_copied(emulated, graph):
    for made_there in ({"graph": graph, "backend": "cuda"}, {"graph": sp.DeviceGraph(graph)}):
        options = {"seeds": [1, 2], "sampler": SAMPLER, "batch_size": 1, "device": "cpu", **made_there}
        with pytest.raises(InputError, match="device: got 'cpu' with a graph on a device"):
            sp.BulkLoader(**options)


def test_trainings_on_two_devices(emulated):
    pytest.importorskip("torch_geometric")
    from spsample.data import planted
    from spsample.training import ModelConfig, TrainConfig, Trainer

    config = TrainConfig(epochs=1, backend="cuda", device="cpu")
    trainer = Trainer(planted(300), SAMPLER, ModelConfig(hidden=8), config)  # where the emulated device is to torch
    assert trainer.loader.device is None
    trainer.close()
