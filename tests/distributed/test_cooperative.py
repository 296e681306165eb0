"""Cooperative minibatches: all ranks share a batch, and train as one process does on the whole of it."""

import copy
import dataclasses
from itertools import chain
from threading import Lock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch_geometric")

import torch
from training_cases import DATA, Seen, on_ranks

import spsample as sp
from spsample.comm import Recorder, run_threads
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.distributed.cooperative import owners_of, share_out
from spsample.errors import InputError, SpSampleError
from spsample.nn.blocks import require_exchanged
from spsample.nn.dropout import DropoutKey, MaskedRows, VertexDropout
from spsample.pipelines import CooperativeGradients
from spsample.training import BlockMaker, ModelConfig, TrainConfig, Trainer, build_model

TIMEOUT = 60.0
SEEDS = np.random.default_rng(0).permutation(400)[:130]
SHAPES = [(1, 1), (2, 1), (3, 1), (4, 2)]
SAMPLERS = [
    sp.GraphSAGE([4, 3, 2]),
    sp.GraphSAGE([3, -1]),
    sp.GraphSAGE([3, 2], replace=True),
    sp.GraphSAGE([3, 2], layout="subgraph"),
    sp.LADIES([20, 30]),
    sp.FastGCN([40, 40]),
]


class OwnSampler(sp.GraphSAGE):
    """A sampler of a user's own, which says nothing of owners."""


def graph_on(comm, kind, c):
    if kind == "replicated":
        return ReplicatedGraph(DATA.graph, comm)
    return PartitionedGraph.from_graph(
        DATA.graph, ProcessGrid(comm, c), partition=np.arange(400) % 7 % (comm.size // c)
    )


def loader_on(comm, c=1, kind="partitioned", **options):
    options = {"batch_size": 24, "bulk_size": 4, "random_seed": 5, "batches": "cooperative", **options}
    sampler = options.pop("sampler", sp.GraphSAGE([3, 2]))
    return sp.BulkLoader(graph_on(comm, kind, c), SEEDS, sampler, features=DATA.x, labels=DATA.y, **options)


def joined(parts):
    return sorted(chain.from_iterable(parts))


def entries(layer):
    """Of a layer, by the vertices' ids: (target, source, value, edge id)."""
    rows = np.repeat(layer.dst_nodes, np.diff(layer.adj.indptr))
    data = np.zeros(layer.adj.nnz) if layer.adj.data is None else layer.adj.data
    edge_ids = np.zeros(layer.adj.nnz, np.int64) if layer.edge_ids is None else layer.edge_ids
    return list(
        zip(rows.tolist(), layer.src_nodes[layer.adj.indices].tolist(), data.tolist(), edge_ids.tolist(), strict=True)
    )


def what(batch):
    layers = [(entries(layer), layer.dst_nodes.tolist(), layer.src_nodes.tolist()) for layer in batch.layers]
    return batch.batch_id, batch.seeds.tolist(), batch.input_id.tolist(), batch.src_nodes.tolist(), layers


def a_pass(comm, c=1, kind="partitioned", **options):
    loader = loader_on(comm, c, kind, **options)
    found = []
    for batch in loader:
        np.testing.assert_array_equal(batch.x, DATA.x[batch.src_nodes])
        np.testing.assert_array_equal(batch.y, DATA.y[batch.seeds])
        np.testing.assert_array_equal(SEEDS[batch.input_id], batch.seeds)
        found.append(what(batch))
    assert len(found) == len(loader) == loader.num_batches
    loader.close()
    return found


@pytest.mark.parametrize(("p", "c"), SHAPES)
@pytest.mark.parametrize(("kind", "prefetch"), [("partitioned", 0), ("replicated", 1)])
@pytest.mark.parametrize("sampler", [*SAMPLERS, OwnSampler([3, 2])], ids=lambda one: f"{type(one).__name__}-{one!r}")
def test_the_ranks_together_have_the_batch_that_one_process_samples(p, c, kind, prefetch, sampler):
    """Each row once, with its values and edge ids; each vertex on the rank that owns it."""

    def body(comm):
        found = a_pass(comm, c, kind, sampler=sampler, edge_ids=True, prefetch=prefetch)
        return found, owners_of(graph_on(comm, kind, c)).of(np.arange(400))

    alone = list(sp.BulkLoader(DATA.graph, SEEDS, sampler, batch_size=24, random_seed=5, edge_ids=True))
    ranks, owners = zip(*run_threads(p, body, TIMEOUT), strict=True)
    for whole, pieces in zip(alone, zip(*ranks, strict=True), strict=True):
        assert {batch_id for batch_id, *_ in pieces} == {whole.batch_id}
        assert joined(seeds for _, seeds, *_ in pieces) == sorted(whole.seeds.tolist())
        assert joined(src for *_, src, _ in pieces) == sorted(whole.src_nodes.tolist())
        for rank, (_, seeds, _, src, _) in enumerate(pieces):
            assert (owners[0][[*seeds, *src]] == rank).all()
        for number, layer in enumerate(whole.layers):
            parts = [layers[number] for *_, layers in pieces]
            assert joined(one for one, _, _ in parts) == sorted(entries(layer))
            assert joined(dst for _, dst, _ in parts) == sorted(layer.dst_nodes.tolist())


def test_rows_keep_the_order_of_their_entries():
    """So that sums over them are added up as one process adds them."""

    def body(comm):
        loader = loader_on(comm, kind="replicated", sampler=sp.LADIES([20, 30]))
        rows = {}
        for batch in loader:
            for number, layer in enumerate(batch.layers):
                for target, source, value, _ in entries(layer):
                    rows.setdefault((batch.batch_id, number, target), []).append((source, value))
        loader.close()
        return rows

    whole = run_threads(1, body, TIMEOUT)[0]
    parts = run_threads(3, body, TIMEOUT)
    assert {key: row for part in parts for key, row in part.items()} == whole


@settings(max_examples=25)
@given(
    seeds=st.lists(st.integers(0, 399), min_size=1, max_size=40),
    batch_size=st.integers(1, 40),
    p=st.integers(1, 4),
    fanouts=st.lists(st.integers(-1, 4).filter(bool), min_size=1, max_size=3),
    parts=st.booleans(),
)
def test_repeated_seeds_and_batches_of_any_size(seeds, batch_size, p, fanouts, parts):
    def body(comm):
        graph = ReplicatedGraph(DATA.graph, comm)
        bulk = sp.bulk_sample(graph, seeds, sp.GraphSAGE(fanouts), batch_size=batch_size)
        owners = owners_of(graph, np.arange(400) % p if parts else None)
        return [
            (one.batch_id, one.num_seeds, one.seeds.tolist(), one.seed_places.tolist())
            for one in share_out(bulk, owners, comm)
        ]

    whole = sp.bulk_sample(DATA.graph, seeds, sp.GraphSAGE(fanouts), batch_size=batch_size)
    for minibatch, pieces in zip(whole, zip(*run_threads(p, body, TIMEOUT), strict=True), strict=True):
        given_here = seeds[minibatch.batch_id * batch_size :][:batch_size]
        found = {}
        for batch_id, num_seeds, own, places in pieces:
            assert (batch_id, num_seeds) == (minibatch.batch_id, minibatch.num_seeds)
            found.update(zip(own, places, strict=True))
        assert found == {seed: given_here.index(seed) for seed in given_here}


def test_goes_on_where_a_state_was_taken():
    """Also on another number of ranks, and from a loader of one process with batches of that size."""
    whole = run_threads(2, a_pass, TIMEOUT)
    alone = sp.BulkLoader(DATA.graph, SEEDS, sp.GraphSAGE([3, 2]), batch_size=24, random_seed=5)
    for step, _ in enumerate(alone):
        if step == 1:
            break
    state = alone.state_dict()

    def body(comm):
        loader = loader_on(comm)
        loader.load_state_dict(state)
        rest = [what(batch) for batch in loader]
        loader.close()
        return rest

    assert run_threads(2, body, TIMEOUT) == [one[2:] for one in whole]
    assert [batch[0] for batch in run_threads(4, body, TIMEOUT)[0]] == [batch[0] for batch in whole[0][2:]]


# ------------------------------------------------------------------------------------------------------------ bad input


def refused(comm, match, **options):
    with pytest.raises(InputError, match=match):
        loader_on(comm, **options)
    return True


def test_what_does_not_fit_all_ranks_refuse():
    parts = np.arange(400) % 3
    for match, options in (
        ("include_targets=True", {"sampler": sp.LADIES([5], include_targets=False)}),
        ("block rows are the parts", {"parts": parts % 2}),
        ("as many parts as divide", {"parts": parts % 3, "kind": "replicated"}),
        ("one integer per vertex", {"parts": parts[1:], "kind": "replicated"}),
        ("parts", {"parts": parts - 1, "kind": "replicated"}),
    ):
        assert all(run_threads(4, lambda comm, m=match, o=options: refused(comm, m, **o), TIMEOUT)), match


def test_ranks_that_disagree_are_refused():
    def body(comm):
        with pytest.raises(SpSampleError, match="ranks"):
            loader_on(comm, kind="replicated", batches="cooperative" if comm.rank else "shuffled")
        with pytest.raises(SpSampleError, match="ranks"):
            loader_on(comm, kind="replicated", parts=(np.arange(400) + comm.rank) % 2)
        return True

    assert all(run_threads(2, body, TIMEOUT))


def test_a_bulk_of_one_rank_that_cannot_be_shared_is_refused_on_all():
    def body(comm):
        sampler = sp.LADIES([5], include_targets=comm.rank > 0)
        bulk = sp.bulk_sample(DATA.graph, SEEDS[:4], sampler, batch_size=4)
        with pytest.raises(SpSampleError, match="include_targets=True"):
            share_out(bulk, owners_of(ReplicatedGraph(DATA.graph, comm)), comm)
        return True

    assert all(run_threads(2, body, 10.0))


@pytest.mark.parametrize("p", [1, 2])
def test_batches_for_pyg_are_whole_ones(p):
    def body(comm):
        loader = loader_on(comm, sampler=sp.GraphSAGE([3, 2], layout="subgraph"))
        with pytest.raises(InputError, match=r"batches: got 'cooperative' with pyg\(\)"):
            loader.pyg()
        loader.close()
        return True

    assert all(run_threads(p, body, TIMEOUT))


def test_local_batches_are_no_cooperative_ones():
    with pytest.raises(InputError, match="batches: got 'local' with pipeline='cooperative'"):
        TrainConfig(pipeline="cooperative", batches="local")


# ------------------------------------------------------------------------------------------------------------- training


def trainer_on(comm, architecture="sage", seen=(), c=1, kind="partitioned", sampler=None, data=DATA, **options):
    options = {"epochs": 2, "batch_size": 48 // comm.size, "bulk_size": 8, "learning_rate": 0.02, **options}
    config = TrainConfig(pipeline="cooperative", **options)
    model = ModelConfig(architecture, hidden=16, dropout=0.3)
    here = data if comm.size == 1 else on_ranks(comm, c, kind, data)
    return Trainer(here, sampler or sp.GraphSAGE([5, 3]), model, config, list(seen))


CASES = [
    ("sage", sp.GraphSAGE([5, 3])),
    ("gat", sp.GraphSAGE([5, 3])),
    ("gcn", sp.LADIES([40, 60])),
    ("residual", sp.FastGCN([40, 60])),
    ("precomputed-sage", sp.GraphSAGE([4])),
]


@pytest.mark.parametrize(("architecture", "sampler"), CASES, ids=lambda one: str(one))
def test_trains_as_one_process_does(architecture, sampler):
    """Dropout too. Each step from the same weights agrees to rounding; losses over two epochs stay together."""

    def body(comm, c=1, kind="partitioned"):
        seen = Seen(save_at="every step")
        trainer = trainer_on(comm, architecture, [seen], c, kind, sampler)
        result = trainer.fit()
        trainer.close()
        return seen, result

    alone, result = run_threads(1, body, TIMEOUT)[0]
    assert len(alone.losses) == 2 * -(-len(DATA.train_idx) // 48)
    for p, c, kind in ((2, 1, "partitioned"), (4, 2, "partitioned"), (3, 1, "replicated")):
        ranks = run_threads(p, lambda comm, c=c, kind=kind: body(comm, c, kind), TIMEOUT)
        for seen, told in ranks:
            np.testing.assert_allclose(seen.losses, alone.losses, rtol=2e-4)
            for mine, one in zip(seen.gradient, alone.gradient, strict=True):
                np.testing.assert_allclose(mine, one, rtol=1e-5, atol=1e-5 * float(one.abs().max()))
            assert abs(told.test - result.test) < 0.05
        assert all(seen.losses == ranks[0][0].losses for seen, _ in ranks)


@pytest.mark.parametrize("architecture", ["sage", "gcn", "gat"])
def test_eighty_steps_in_float64(architecture):
    """Without dropout the parameters are those of one process, to 1e-9."""
    sampler = sp.LADIES([30, 40]) if architecture == "gcn" else sp.GraphSAGE([4, 3])

    def body(comm):
        graph = DATA.graph if comm.size == 1 else ReplicatedGraph(DATA.graph, comm)
        walked = graph if architecture != "gcn" else graph.normalized("row")
        blocks = BlockMaker(graph, sampler)
        options = {"batch_size": 40, "features": DATA.x, "labels": DATA.y, "batches": "cooperative"}
        loader = sp.BulkLoader(walked, DATA.train_idx, sampler, **options)
        with lock:
            torch.manual_seed(0)
            model = build_model(DATA.x.shape[1], DATA.num_classes, 2, ModelConfig(architecture, hidden=8, dropout=0.0))
        model.double()
        gradients, optimizer = CooperativeGradients(model, comm), torch.optim.Adam(model.parameters(), lr=0.01)
        steps = 0
        while steps < 80:
            batches = iter(loader)
            while True:
                with blocks.step():
                    batch = next(batches, None)
                    if batch is not None:
                        x, layers = blocks.inputs(batch, model)
                        layers = [in_float64(layer) for layer in layers]
                        optimizer.zero_grad()
                        logits = model(x.double(), layers)
                        y = torch.from_numpy(batch.y).long()
                        loss = torch.nn.functional.cross_entropy(logits, y) if len(y) else logits.sum() * 0.0
                        require_exchanged(*(layer.exchange for layer in layers))
                        gradients.prepare(loss, len(batch.seeds) / batch.num_seeds)
                if batch is None:
                    break
                gradients.finish(loss, len(batch.seeds))
                optimizer.step()
                steps += 1
        loader.close()
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()

    lock = Lock()
    alone = run_threads(1, body, TIMEOUT)[0]
    for p in (2, 4):
        for weights in run_threads(p, body, TIMEOUT):
            np.testing.assert_allclose(weights, alone, rtol=0, atol=1e-9)


def in_float64(block):
    return dataclasses.replace(block, values=block.values.double(), degrees=block.degrees.double())


def test_goes_on_bit_for_bit_at_every_step():
    def body(comm):
        seen = Seen(save_at="every step")
        trainer = trainer_on(comm, seen=[seen])
        trainer.fit()
        trainer.close()
        for step in range(0, len(seen.states), 5):
            rest = Seen()
            resumed = trainer_on(comm, seen=[rest])
            resumed.load_state_dict(copy.deepcopy(seen.states[step]))
            resumed.fit()
            resumed.close()
            assert rest.losses == seen.losses[step + 1 :]
        return True

    assert all(run_threads(2, body, TIMEOUT))


@pytest.mark.parametrize("p", [1, 4])
def test_pipelines_change_no_loss(p):
    def body(comm):
        losses = []
        for pipeline in ("sync", "overlap"):
            seen = Seen()
            config = TrainConfig(epochs=2, batch_size=24, bulk_size=8, pipeline=pipeline)
            data = DATA if comm.size == 1 else on_ranks(comm)
            trainer = Trainer(data, sp.GraphSAGE([4, 3]), ModelConfig(hidden=8), config, [seen])
            assert trainer.loader.ahead.prefetch == (pipeline == "overlap")
            trainer.fit()
            trainer.close()
            losses.append(seen.losses)
        assert losses[0] == losses[1]
        return True

    assert all(run_threads(p, body, TIMEOUT))


def test_each_row_goes_once_to_each_rank_that_needs_it():
    """What a recorder counts, against the routes of the batch."""

    def body(comm):
        recorder = Recorder(comm)
        graph = ReplicatedGraph(DATA.graph, recorder)
        sampler = sp.GraphSAGE([5, 3])
        bulk = share_out(sp.bulk_sample(graph, SEEDS[:50], sampler, batch_size=50), owners_of(graph), recorder)
        blocks = [BlockMaker(graph, sampler)(layer) for layer in bulk[0].layers]
        h = torch.ones(len(bulk[0].src_nodes), 6, requires_grad=True)
        for block, layer in zip(blocks, bulk[0].layers, strict=True):
            remote = ~np.isin(layer.src_nodes, bulk[0].src_nodes)
            assert len(set(layer.src_nodes.tolist())) == len(layer.src_nodes)
            assert layer.routes.recv_counts.sum() == remote.sum()
            sources = block.sources(h)
            assert len(sources) == len(layer.src_nodes)
            h = sources[: block.num_dst]
        h.sum().backward()
        traffic, sent = recorder.traffic.phases, sum(layer.routes.send_counts.sum() for layer in bulk[0].layers)
        assert traffic["batch activations"].bytes_sent == sent * 6 * 4
        received = sum(layer.routes.recv_counts.sum() for layer in bulk[0].layers)
        assert traffic["batch gradients"].bytes_sent == received * 6 * 4
        return True

    assert all(run_threads(3, body, TIMEOUT))


class NoExchange(torch.nn.Module):
    """A model that takes its own rows for those of all sources."""

    def __init__(self, wide):
        super().__init__()
        self.linear = torch.nn.Linear(wide, 4)

    def forward(self, x, blocks):
        h = torch.nn.functional.pad(x, (0, 0, 0, max(0, blocks[0].num_src - len(x))))
        for block in blocks:
            h = block.aggregate(h[: block.num_src])
        return self.linear(h)


def test_a_model_that_exchanges_nothing_is_refused():
    def body(comm):
        trainer = trainer_on(comm)
        trainer.pipeline.attach(NoExchange(DATA.x.shape[1]), trainer.optimizer)
        with pytest.raises(SpSampleError, match=r"did not call block\.sources"):
            trainer.fit()
        return True

    assert all(run_threads(2, body, TIMEOUT))


@pytest.mark.parametrize("at", ["forward", "backward"])
def test_a_rank_that_fails_between_two_exchanges_ends_all(at):
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h, fails):
            ctx.fails = fails
            if at == "forward" and fails:
                raise ZeroDivisionError("no more")
            return h.clone()

        @staticmethod
        def backward(ctx, g):
            if ctx.fails:
                raise ZeroDivisionError("no more")
            return g, None

    class Layer(torch.nn.Module):
        def __init__(self, conv, fails):
            super().__init__()
            self.conv, self.fails = conv, fails

        def forward(self, h, block):
            return self.conv(Failing.apply(h, self.fails), block)

    def body(comm):
        trainer = trainer_on(comm, prefetch=comm.size % 2)
        trainer.model.convs[1] = Layer(trainer.model.convs[1], comm.rank == 1)
        with pytest.raises(Exception, match="no more"):
            trainer.fit()
        return True

    assert all(run_threads(3, body, TIMEOUT))


# -------------------------------------------------------------------------------------------------------------- dropout


def test_masks_belong_to_vertices():
    dropout, key = VertexDropout(0.3), DropoutKey(random_seed=2, epoch=1, batch_id=9)
    vertices = np.array([7, 2**40 + 3, 0, 5])
    whole = dropout(torch.ones(4, 10), MaskedRows(vertices, key))
    order = np.array([2, 0, 3])
    assert torch.equal(dropout(torch.ones(3, 10), MaskedRows(vertices[order], key)), whole[order])
    assert torch.equal(dropout(torch.ones(4, 7), MaskedRows(vertices, key)), whole[:, :7])
    others = [
        dropout(torch.ones(4, 10), MaskedRows(vertices, dataclasses.replace(key, **{name: 3})))
        for name in ("random_seed", "epoch", "batch_id")
    ]
    dropout.site = 1
    for other in (*others, dropout(torch.ones(4, 10), MaskedRows(vertices, key))):
        assert not torch.equal(other, whole)


def test_drops_with_its_probability():
    """Each number by itself: the count is within five standard deviations, and columns and rows do not agree."""
    dropout = VertexDropout(0.3)
    kept = dropout(torch.ones(2000, 40), MaskedRows(np.arange(2000), DropoutKey(0, 0, 0))).numpy()
    assert set(np.unique(kept).tolist()) == {0.0, np.float32(1 / 0.7).item()}
    dropped = kept == 0
    assert abs(dropped.mean() - 0.3) < 5 * np.sqrt(0.21 / dropped.size)
    together = (dropped[:-1] & dropped[1:]).mean(), (dropped[:, :-1] & dropped[:, 1:]).mean()
    np.testing.assert_allclose(together, 0.09, atol=5 * np.sqrt(0.09 * 0.91 / dropped.size))


def test_all_is_dropped_or_what_is_no_probability_refused():
    rows = MaskedRows(np.arange(3), DropoutKey(0, 0, 0))
    assert torch.equal(VertexDropout(1.0)(torch.ones(3, 5), rows), torch.zeros(3, 5))
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match=r"p: got .* from 0 to 1"):
            VertexDropout(p)


def test_evaluation_drops_nothing():
    dropout = VertexDropout(0.5).eval()
    h = torch.ones(3, 5)
    assert torch.equal(dropout(h, MaskedRows(np.arange(3), DropoutKey(0, 0, 0))), h)
