"""Batches of the host that a loader copies to a GPU ahead of their use; needs torch, and no CuPy."""

from __future__ import annotations

import numpy as np
import pytest

import spsample as sp
from spsample.data import planted
from spsample.errors import InputError

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU: torch finds none", allow_module_level=True)

pytestmark = pytest.mark.gpu
SAMPLER = sp.GraphSAGE([10, 5])
SEEDS = np.arange(20_000)


@pytest.fixture(scope="module")
def graph():
    return sp.load_dataset("rmat:15,16").graph


@pytest.fixture(scope="module")
def x(graph):
    return np.random.default_rng(0).normal(size=(graph.num_nodes, 100)).astype(np.float32)


def loaders(graph, x, **changes):
    options = {"batch_size": 256, "bulk_size": 16, "features": x, "labels": np.arange(graph.num_nodes), **changes}
    sampler = options.pop("sampler", SAMPLER)
    return (sp.BulkLoader(graph, SEEDS, sampler, device=device, **options) for device in (None, "cuda"))


@pytest.mark.parametrize(
    "options", [{"prefetch": 0}, {}, {"prefetch": 2, "fetch": "bulk"}, {"edge_ids": True}], ids=str
)
def test_batches_are_those_of_the_host(graph, x, options):
    host, there = loaders(graph, x, **options)
    for batch, copied in zip(host, there, strict=True):
        assert copied.x.is_cuda
        assert copied.layers[0].adj.indices.is_cuda
        np.testing.assert_array_equal(batch.x, copied.x.cpu().numpy())
        np.testing.assert_array_equal(batch.y, copied.y.cpu().numpy())
        np.testing.assert_array_equal(batch.seeds, copied.seeds.cpu().numpy())
        for layer, other in zip(batch.minibatch.to_scipy(), copied.minibatch.to_scipy(), strict=True):
            assert (layer != other).nnz == 0
    assert there.device == torch.device("cuda", torch.cuda.current_device())


def test_batches_of_pyg(graph, x):
    pytest.importorskip("torch_geometric")
    host, there = (loader.pyg() for loader in loaders(graph, x, sampler=sp.GraphSAGE([10, 5], layout="subgraph")))
    for data, copied in zip(host, there, strict=True):
        assert copied.edge_index.is_cuda
        assert torch.equal(data.x, copied.x.cpu())
        assert torch.equal(data.edge_index, copied.edge_index.cpu())


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_stream_that_is_behind_reads_all_of_what_was_dropped(graph, x, prefetch):
    """The loop's stream has much to do when it is given a batch; that is dropped at once, and its memory free."""
    host, there = loaders(graph, x, prefetch=prefetch)
    sums = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for batch in there:
            torch.cuda._sleep(5_000_000)  # clock cycles
            sums.append(
                (batch.x.double().sum(), batch.layers[0].adj.indices.long().sum(), batch.src_nodes.long().sum())
            )
            del batch
    torch.cuda.synchronize()
    for batch, found in zip(host, sums, strict=True):
        assert found[1].item() == batch.layers[0].adj.indices.astype(np.int64).sum()
        assert found[2].item() == batch.src_nodes.astype(np.int64).sum()
        np.testing.assert_allclose(found[0].item(), batch.x.astype(np.float64).sum(), rtol=1e-9)


def losses(data, loader, by_hand):
    """Of a small model, whose batches are copied by hand or by the loader."""
    from spsample.training import BlockMaker, ModelConfig, build_model

    torch.manual_seed(0)
    model = build_model(data.x.shape[1], data.num_classes, 2, ModelConfig(hidden=32, dropout=0.0)).cuda()
    optimizer, blocks = torch.optim.Adam(model.parameters()), BlockMaker(data.graph, SAMPLER)
    labels, found = torch.from_numpy(data.y).cuda(), []
    for _ in range(2):
        for batch in loader:
            rows, layers = blocks.inputs(batch, model)  # copies what is on the host
            seeds = torch.as_tensor(batch.seeds).long().cuda() if by_hand else batch.seeds.long()
            loss = torch.nn.functional.cross_entropy(model(rows, layers), labels[seeds])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    return found


def test_losses_are_those_of_copies_by_hand():
    pytest.importorskip("torch_geometric")
    data = planted(3000)
    options = {"batch_size": 128, "features": data.x}
    make = lambda device: sp.BulkLoader(data.graph, data.train_idx, SAMPLER, device=device, **options)  # noqa: E731
    np.testing.assert_allclose(losses(data, make("cuda"), False), losses(data, make(None), True), rtol=1e-3)


@pytest.mark.parametrize("pipeline", ["sync", "overlap"])
@pytest.mark.parametrize("sampler", [sp.GraphSAGE([5, 5]), sp.LADIES([64, 64])], ids=str)
def test_training(sampler, pipeline):
    pytest.importorskip("torch_geometric")
    from spsample.training import ModelConfig, TrainConfig, Trainer

    found = []
    for device in ("cuda", "auto", None):
        config = TrainConfig(epochs=3, batch_size=64, device=device, pipeline=pipeline, evaluation="both")
        trainer = Trainer(planted(1000), sampler, ModelConfig(hidden=16, dropout=0.0), config)
        assert next(trainer.model.parameters()).is_cuda == (device is not None)
        result = trainer.fit()
        assert ("copies" in result.seconds) == (device is not None)
        found.append([record.loss for record in result.history])
        trainer.close()
    np.testing.assert_allclose(found[0], found[2], rtol=1e-3)
    np.testing.assert_allclose(found[1], found[2], rtol=1e-3)


def test_dropout_on_the_gpu_follows_from_the_run():
    pytest.importorskip("torch_geometric")
    from spsample.training import ModelConfig, TrainConfig, Trainer

    found = []
    for _ in range(2):
        config = TrainConfig(epochs=2, batch_size=64, device="cuda")
        trainer = Trainer(planted(1000), SAMPLER, ModelConfig(hidden=16), config)
        found.append([record.loss for record in trainer.fit().history])
        trainer.close()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)


@pytest.mark.slow
def test_copies_go_on_beside_the_work(graph):
    """The next batch has come while the GPU still works on this one."""
    x = np.random.default_rng(0).normal(size=(graph.num_nodes, 600)).astype(np.float32)
    loader = sp.BulkLoader(graph, SEEDS, SAMPLER, device="cuda", batch_size=1024, features=x, prefetch=2)
    expected = [batch.x[0].tolist() for batch in loader]
    loader.set_epoch(0)
    batches = iter(loader)
    next(batches)
    torch.cuda._sleep(20_000_000_000)  # some ten seconds of work
    over = torch.cuda.Event()
    over.record()
    with torch.cuda.stream(torch.cuda.Stream()):
        assert next(batches).x[0].tolist() == expected[1]  # waits for its copy, and not for the work
    assert not over.query()


def test_features_on_the_gpu_and_a_graph_on_the_host(graph, x):
    pytest.importorskip("cupy")
    features = sp.DeviceFeatures(x, 1.0)
    there = sp.BulkLoader(graph, SEEDS, SAMPLER, batch_size=256, features=features, device="cuda")
    host = sp.BulkLoader(graph, SEEDS, SAMPLER, batch_size=256, features=x)
    for batch, copied in zip(host, there, strict=True):
        np.testing.assert_array_equal(batch.x, torch.from_dlpack(copied.x).cpu().numpy())
        assert copied.layers[0].adj.indices.is_cuda


def test_what_there_is_not(graph, x):
    with pytest.raises(InputError, match="device: got 'cuda:99'"):
        sp.BulkLoader(graph, SEEDS, SAMPLER, batch_size=256, device="cuda:99")
    pytest.importorskip("cupy")
    with pytest.raises(InputError, match="with a graph on a device"):
        sp.BulkLoader(graph, SEEDS, SAMPLER, batch_size=256, device="cuda", backend="cuda")
