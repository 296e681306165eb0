"""Models of these layers under what torch does to models: compiled, cast, differentiated, on ranks, in a trainer."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from layer_cases import Case, both, difference
from test_layer_rules import are_fast, assert_right, loader
from torch import nn

import spsample.nn as ours
from spsample.pyg import trim
from spsample.sampling.hops import Hops

TIMEOUT = 120

LAYERS = [Case("SAGEConv"), Case("GCNConv", {}, "weight"), Case("GATConv"), Case("GraphConv", {}, "weight")]


def edges_of(case, batch):
    return [batch.edge_weight] if case.edges else []


@pytest.fixture(autouse=True)
def _compiled_anew():
    yield
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()


@pytest.mark.parametrize("kind", ["ours", "trimmed"])
@pytest.mark.parametrize("case", LAYERS, ids=str)
@pytest.mark.filterwarnings("ignore::UserWarning:torch._dynamo", "ignore::DeprecationWarning")
def test_compiled(case, kind):
    theirs, mine = both(case, 2)
    if kind == "trimmed":
        if case.layer == "GCNConv":
            pytest.skip("takes no pairs")
        mine = trim(copy.deepcopy(theirs))
    compiled = torch.compile(mine, backend="eager")
    for number, batch in enumerate(loader((3, 2), 4)):
        if number == 6:
            break
        out = compiled(batch.x, batch.edge_index, *edges_of(case, batch))
        assert len(out) == batch.batch_size
        assert difference(theirs, compiled, batch, case.edges) < 1e-12
    assert are_fast(mine)
    graphs = torch._dynamo.utils.counters["stats"].get("unique_graphs", 0)
    assert graphs < (3 if kind == "ours" else 40)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_compiled_by_the_default_backend():
    theirs, mine = both(Case("SAGEConv"), 2)
    whole = torch.compile(mine)

    def forward(net, batch, edge_index):
        return net(batch.x, edge_index)[: batch.batch_size]

    for batch in loader((3, 2), 20):
        torch.testing.assert_close(
            forward(whole, batch, batch.edge_index), forward(theirs, batch, batch.edge_index.clone())
        )
    assert are_fast(mine)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_dropout_is_compiled_with_what_is_around_it():
    model = nn.Sequential(nn.Linear(4, 50), ours.Dropout(0.4))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    x = torch.randn(60, 4)
    out = compiled(x)
    out.sum().backward()
    kept = out != 0
    torch.testing.assert_close(out, torch.where(kept, model[0](x) / 0.6, 0))
    torch.testing.assert_close(model[0].bias.grad, kept.sum(0) / 0.6)
    assert 0.5 < kept.float().mean() < 0.7
    assert not torch.equal(compiled(x) != 0, kept)


def test_nothing_is_compiled_where_layers_are_imported():
    """PyG imports torch._dynamo; what has no need of PyG does without."""
    code = "import sys, spsample.nn, spsample.nn.functional; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_autocast(case):
    """Sums are of float32, products may be of bfloat16."""
    theirs, mine = (net.float() for net in both(case, 2))
    for batch in loader((3, 2), 20):
        x, edges = batch.x.float(), [one.float() for one in edges_of(case, batch)]
        whole = theirs(x, batch.edge_index.clone(), *edges)[: batch.batch_size]
        with torch.autocast("cpu", torch.bfloat16):
            out = mine(x, batch.edge_index, *edges)
        out.float().sum().backward()
        torch.testing.assert_close(out.float(), whole, rtol=0.05, atol=0.05)
    assert are_fast(mine)


def test_sums_of_many_are_of_float32_under_autocast():
    """1 + 2^-9 + ... loses its small parts in bfloat16."""
    n = 2000
    edge_index = torch.stack([torch.arange(2, n), torch.zeros(n - 2, dtype=torch.int64)])
    edge_index = Hops.put_on(edge_index, [2, n - 2], [n - 2])
    conv = ours.GCNConv(300, 1, normalize=False)
    nn.init.constant_(conv.lin.weight, 2**-8)
    with torch.autocast("cpu", torch.bfloat16):
        out = conv(torch.ones(n, 300), edge_index)
    assert abs(float(out[0].detach()) / ((n - 2) * 300 / 256) - 1) < 0.01


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_functional_calls_and_their_gradients(case):
    theirs, mine = both(case, 2)
    parameters = {name: one.detach() for name, one in mine.named_parameters()}
    for batch in loader((3, 2), 20):

        def loss(parameters, batch=batch, x=batch.x):
            out = torch.func.functional_call(mine, parameters, (x, batch.edge_index, *edges_of(case, batch)))
            return out[: batch.batch_size].square().sum()

        found = torch.func.grad(loss)(parameters)
        of_x = torch.func.grad(lambda x, loss=loss: loss(parameters, x=x))(batch.x)
        tangent = torch.func.jvp(lambda x, loss=loss: loss(parameters, x=x), (batch.x,), (torch.ones_like(batch.x),))[1]
        theirs.zero_grad()
        x = batch.x.clone().requires_grad_()
        theirs(x, batch.edge_index.clone(), *edges_of(case, batch))[: batch.batch_size].square().sum().backward()
        for name, one in theirs.named_parameters():
            torch.testing.assert_close(found[name], one.grad)
        torch.testing.assert_close(of_x, x.grad)
        torch.testing.assert_close(tangent, x.grad.sum())
        assert_right(theirs, mine, batch, case.edges)  # nothing of the transform is left
    assert are_fast(mine)


def test_weights_that_a_transform_differentiates():
    theirs, mine = both(Case("GraphConv", {}, "weight"), 2)
    batch = next(iter(loader()))
    gradients = [
        torch.func.grad(lambda w, net=net, e=e: net(batch.x, e, w)[: batch.batch_size].sum())(batch.edge_weight)
        for net, e in ((theirs, batch.edge_index.clone()), (mine, batch.edge_index))
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_a_batch_that_was_evaluated_is_trained_on(case):
    for context in (torch.inference_mode, torch.no_grad):
        theirs, mine = both(case, 2)
        for batch in loader((3, 2), 20):
            with context():
                mine(batch.x, batch.edge_index, *edges_of(case, batch))
            assert_right(theirs, mine, batch, case.edges)


def test_a_backward_pass_twice():
    mine, batch = both(Case("SAGEConv"), 2)[1], next(iter(loader()))
    out = mine(batch.x, batch.edge_index)
    first, second = (torch.autograd.grad(out.sum(), mine.parameters(), retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.slow
@pytest.mark.needs("gloo")
def test_two_ranks_of_ddp(tmp_path):
    ranks = torch.multiprocessing.spawn(_train_a_rank, (2, str(tmp_path / "start")), nprocs=2, join=False)
    end = time.monotonic() + TIMEOUT
    try:
        while not ranks.join(1):
            assert time.monotonic() < end, "the ranks do not end"
    finally:
        for process in ranks.processes:
            process.kill()


def _train_a_rank(rank, ranks, start):
    """The mean of the gradients over the ranks' batches is that of one process."""
    import torch.distributed as dist

    sys.path.insert(0, str(Path(__file__).resolve().parent))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{start}", rank=rank, world_size=ranks)
    try:
        torch.manual_seed(0)
        theirs, mine = both(Case("SAGEConv"), 2)
        model = nn.parallel.DistributedDataParallel(mine)
        batches = list(loader((3, 2), 4))[:4]
        for first in (0, 2):
            theirs.zero_grad()
            for batch in batches[first : first + 2]:
                (theirs(batch.x, batch.edge_index.clone())[: batch.batch_size].sum() / 2).backward()
            model.zero_grad()
            batch = batches[first + rank]
            model(batch.x, batch.edge_index).sum().backward()
            for one, other in zip(theirs.parameters(), mine.parameters(), strict=True):
                torch.testing.assert_close(other.grad, one.grad)
        assert are_fast(mine)
        dist.barrier()  # no rank ends while another one still talks to it
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")
    from lightning_fabric.plugins import environments

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = both(Case("GCNConv", {}, "weight"), 2)[1]

        def training_step(self, batch):
            out = self.net(batch.x, batch.edge_index, batch.edge_weight)
            assert len(out) < batch.num_nodes or batch.batch_size == 1
            return out[: batch.batch_size].square().sum()

        validation_step = test_step = training_step

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    task = Task()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        plugins=[environments.LightningEnvironment()],  # it is not to look for MPI
    )
    trainer.fit(task, loader((3, 2), 20), loader((3, 2), 20))
    trainer.test(task, loader((3, 2), 20, filter_per_worker=False), verbose=False)
    assert are_fast(task.net)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of torch")
@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_on_a_gpu(case):
    theirs, mine = (net.cuda() for net in both(case, 2))
    for batch in loader((3, 2), 20):
        moved = batch.to("cuda")
        torch.cuda.manual_seed(0)
        out = mine(moved.x, moved.edge_index, *edges_of(case, moved))
        whole = theirs(moved.x, moved.edge_index.clone(), *edges_of(case, moved))
        torch.testing.assert_close(out, whole[: len(out)])
        assert len(out) == batch.batch_size
        for net, result in ((mine, out), (theirs, whole)):
            net.zero_grad()
            result[: batch.batch_size].square().sum().backward()
        for one, other in zip(theirs.parameters(), mine.parameters(), strict=True):
            torch.testing.assert_close(other.grad, one.grad)
    assert are_fast(mine)
