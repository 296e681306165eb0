"""Training on a device with features on a disk, in block rows of ranks, or in an array: the losses are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler

torch = pytest.importorskip("torch")

import spsample as sp  # noqa: E402
from spsample.comm import run_threads  # noqa: E402
from spsample.data import planted  # noqa: E402
from spsample.features import CachedFeatures, DeviceFeatures, DiskFeatures, FeatureStore, PartitionedFeatures  # noqa: E402
from spsample.training import ModelConfig, TrainConfig, Trainer  # noqa: E402

pytestmark = needs_compiler
__all__ = ["emulated"]

SAMPLER = sp.GraphSAGE([4, 3])


def data_of():
    """New each time: a graph keeps its copy on the device."""
    return planted(400, degree=5)


def trained(data, parts=None, **settings):
    config = TrainConfig(**{"epochs": 2, "batch_size": 64, "backend": "cuda", **settings})
    trainer = Trainer(data, SAMPLER, ModelConfig(hidden=8, dropout=0.0), config, parts=parts)
    result = trainer.fit()
    trainer.close()
    return trainer.loader.features, [record.loss for record in result.history], result.cache


@pytest.mark.parametrize("fetch", ["batch", "bulk"])
@pytest.mark.parametrize("budget", ["4KiB", 4096, "auto"])
def test_features_on_a_disk_behind_a_device(emulated, tmp_path, budget, fetch):
    data = data_of()
    np.save(tmp_path / "x.npy", data.x)
    _, expected, _ = trained(replace(data, x=FeatureStore(data.x)))
    with DiskFeatures(tmp_path / "x.npy", "1MiB") as disk:
        features, losses, counts = trained(replace(data_of(), x=disk), cache_budget=budget, fetch=fetch)
        assert isinstance(features, DeviceFeatures)
        assert features.source is disk
        assert losses == expected
        assert counts["hits"] > 0
        assert (counts["misses"] == 0) == (budget == "auto")
        assert budget == "auto" or features.nbytes <= 4096


@pytest.mark.parametrize("is_array", [False, True])
def test_rows_by_their_next_use_are_kept_on_the_host(emulated, is_array):
    data = data_of()
    settings = {"cache_budget": "20KiB", "cache_replacement": "lookahead"}
    features, losses, _ = trained(data if is_array else replace(data, x=FeatureStore(data.x)), **settings)
    assert isinstance(features, CachedFeatures)
    assert losses == trained(data_of())[1]


def test_the_budget_of_an_array_counts_its_table(emulated):
    features, losses, counts = trained(data_of(), cache_budget="8KiB")
    row_bytes = 4 * features.dim
    assert features.hot_rows == ((8 << 10) - 8 * 400) // row_bytes
    assert losses == trained(data_of())[1]
    assert counts is None


@pytest.mark.parametrize("batches", ["shuffled", "local"])
def test_block_rows_of_ranks_behind_a_device_each(emulated, batches):
    def body(comm, **settings):
        data, grid = data_of(), sp.ProcessGrid(comm)
        graph = sp.PartitionedGraph.from_graph(data.graph, grid)
        x = PartitionedFeatures.of(data.x, grid)
        return trained(replace(data, graph=graph, x=x), batches=batches, **settings)

    plain = run_threads(2, body, 60.0)
    tiers = run_threads(2, lambda comm: body(comm, cache_budget="4KiB"), 60.0)
    for (_, expected, _), (features, losses, counts) in zip(plain, tiers, strict=True):
        assert isinstance(features, DeviceFeatures)
        assert losses == expected
        assert counts["hits"] > 0 < counts["misses"]
