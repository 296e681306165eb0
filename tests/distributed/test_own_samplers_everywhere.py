"""Samplers of one's own, as in docs/own-sampler.md: statements, plans, loaders, ranks, devices, training on ranks."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler
from own_samplers import NearUniform, OwnLayerwise, SumSampler
from partitioned_cases import ALGORITHMS, GRAPHS, batches_of, divisors, gathered, same_batches

import spsample as sp
from spsample.comm import run_threads
from spsample.errors import CapacityError, InputError
from spsample.sampling import LayerwiseSampler
from spsample.sparse import (
    extract,
    its_sample,
    normalize_rows,
    square,
)

__all__ = ["emulated"]


class SquaredSums(LayerwiseSampler):
    """Layer-wise, by column on every graph."""

    def draw_law(self, weighting):
        return "column"

    def layer(self, A, Q, draw, want):
        P = normalize_rows(square(Q.per_batch() @ A))
        return extract(its_sample(P, draw), want, self.weights)


SAMPLERS = [NearUniform([3, 2]), NearUniform([2, -1]), SumSampler([6, 9]), OwnLayerwise([6, 9]), SquaredSums([6, 9])]
SEEDS = np.arange(40) * 7 % 61
CALL = {"seeds": SEEDS, "batch_size": 6, "random_seed": 5, "edge_ids": True}


# ------------------------------------------------------------------------------------------------- what they state


@pytest.mark.parametrize(
    ("sampler", "kind", "aggregation", "power", "laws"),
    [
        (NearUniform([2]), "node-wise", "mean", 2, ("row", "row", "row")),
        (SumSampler([2]), "layer-wise", "values", 1, ("entry", "entry", "column")),
        (OwnLayerwise([2]), "layer-wise", "values", 2, ("entry", "entry", "column")),
        (SquaredSums([2]), "layer-wise", "values", 2, ("column", "column", "column")),
        (sp.GraphSAGE([2]), "node-wise", "mean", 2, ("row", "row", "row")),
        (sp.LADIES([2]), "layer-wise", "values", 2, ("entry", "entry", "column")),
        (sp.LADIES([2], law="squared_count"), "layer-wise", "values", 2, ("column", "column", "column")),
        (sp.FastGCN([2]), "layer-wise", "values", 2, ("graph", "graph", "graph")),
    ],
    ids=repr,
)
def test_statements(sampler, kind, aggregation, power, laws):
    assert (sampler.kind, sampler.aggregation, sampler.power, sampler.layout) == (kind, aggregation, power, "blocks")
    assert tuple(sampler.draw_law(weighting) for weighting in ("unweighted", "row", "weighted")) == laws


def test_a_kind_of_its_own_is_stated_and_a_wrong_one_refused():
    class MeanOfDrawn(OwnLayerwise):
        aggregation = "mean"
        kind = "layer-wise"

    class Wrong(OwnLayerwise):
        kind = "layerwise"

    assert MeanOfDrawn([3]).draw_law("unweighted") == "entry"
    with pytest.raises(InputError, match=r"Wrong\.kind: got 'layerwise'; expected one of 'node-wise', 'layer-wise'"):
        Wrong([3])


def test_other_sizes():
    class Twice(SumSampler):
        def __init__(self, sizes, *, twice=False, **options):
            super().__init__(sizes, **options)
            self.twice = twice

        def options(self):
            return {**super().options(), "twice": self.twice}

    other = Twice([3, 4], twice=True, normalize_rows=True).with_sizes((9,))
    assert other == Twice([9], twice=True, normalize_rows=True)
    assert sp.GraphSAGE([2], layout="subgraph").with_sizes([3]) == sp.GraphSAGE([3], layout="subgraph")


# ------------------------------------------------------------------------------------------------- plans and loaders


def epoch_of(loader):
    return {batch.batch_id: batch.minibatch for batch in loader}


@pytest.mark.parametrize("kind", ["plain", "weighted"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_plans(sampler, kind):
    """A bulk takes at most what its plan says, and a budget changes no sample."""
    graph = GRAPHS[kind]()
    plan = sp.plan_bulk(graph, SEEDS, sampler, batch_size=4, memory_budget="1GiB")
    bulk = sp.bulk_sample(graph, SEEDS, sampler, batch_size=4)
    assert sum(layer.nbytes for layer in bulk.layers) <= plan.result_bytes(len(bulk)) <= plan.peak(len(bulk))
    loaders = [
        sp.BulkLoader(graph, SEEDS, sampler, batch_size=4, bulk_size="auto", memory_budget=budget, random_seed=3)
        for budget in ("1GiB", plan.peak(2))
    ]
    assert 1 <= loaders[1].bulk_size < loaders[0].bulk_size or loaders[0].bulk_size <= 2
    epochs = [epoch_of(loader) for loader in loaders]
    same_batches(*({i: batches_of([mb])[i] for i, mb in epoch.items()} for epoch in epochs))
    with pytest.raises(CapacityError, match="memory_budget"):
        sp.plan_bulk(graph, SEEDS, sampler, batch_size=4, memory_budget=1000)


# ------------------------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize("kind", list(GRAPHS))
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_replicated_graph_gives_what_one_rank_does(sampler, kind):
    graph = GRAPHS[kind]()
    want = batches_of(sp.bulk_sample(graph, sampler=sampler, **CALL))
    got = run_threads(
        3, lambda comm: batches_of(sp.bulk_sample(sp.ReplicatedGraph(graph, comm), sampler=sampler, **CALL))
    )
    same_batches(gathered(got), want)


@pytest.mark.parametrize("kind", list(GRAPHS))
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_partitioned_graph_gives_what_one_rank_does(sampler, kind):
    graph = GRAPHS[kind]()
    want = batches_of(sp.bulk_sample(graph, sampler=sampler, **CALL))
    grids = [
        (c, algorithm) for c in divisors(4) for algorithm in ALGORITHMS if algorithm == "column" or 4 % (c * c) == 0
    ]

    def body(comm):
        for c, algorithm in grids:
            parts = sp.PartitionedGraph.from_graph(graph, sp.ProcessGrid(comm, replication=c), algorithm=algorithm)
            yield batches_of(sp.bulk_sample(parts, sampler=sampler, **CALL))

    for got in zip(*run_threads(4, lambda comm: list(body(comm))), strict=True):
        same_batches(gathered(list(got)), want)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("shape", ["replicated", "partitioned"])
def test_loaders_on_ranks_within_a_budget(sampler, shape):
    graph = GRAPHS["plain"]()
    x = np.arange(64, dtype=np.float32)[:, None]
    options = {"batch_size": 4, "random_seed": 3, "features": x}
    want = {i: batches_of([mb])[i] for i, mb in epoch_of(sp.BulkLoader(graph, SEEDS, sampler, **options)).items()}

    def body(comm):
        shared = sp.ReplicatedGraph(graph, comm)
        if shape == "partitioned":
            shared = sp.PartitionedGraph.from_graph(graph, sp.ProcessGrid(comm))
        loader = sp.BulkLoader(shared, SEEDS, sampler, bulk_size="auto", memory_budget="1GiB", **options)
        assert loader.plan is not None
        batches = list(loader)
        for batch in batches:
            np.testing.assert_array_equal(batch.x[:, 0], batch.src_nodes)
        return {batch.batch_id: batches_of([batch.minibatch])[batch.batch_id] for batch in batches if len(batch.seeds)}

    same_batches(gathered(run_threads(2, body)), want)


# ----------------------------------------------------------------------------------------------------------- a device


@needs_compiler
@pytest.mark.parametrize("kind", ["plain", "weighted", "row_normalized"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_device_gives_what_the_host_does(emulated, sampler, kind):
    graph = GRAPHS[kind]()
    want = batches_of(sp.bulk_sample(graph, sampler=sampler, **CALL))
    bulk = sp.bulk_sample(graph, sampler=sampler, **CALL, backend="cuda")
    assert emulated.owns(bulk.layers[0].src)
    same_batches(batches_of(bulk.to_host()), want)


@needs_compiler
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_loaders_on_a_device_within_a_budget(emulated, sampler):
    graph = GRAPHS["plain"]()
    options = {"batch_size": 4, "random_seed": 3}
    want = epoch_of(sp.BulkLoader(graph, SEEDS, sampler, **options))
    loader = sp.BulkLoader(sp.DeviceGraph(graph), SEEDS, sampler, bulk_size="auto", memory_budget="1GiB", **options)
    assert loader.plan.largest(3) == 3
    for batch in loader:
        for mine, other in zip(batch.layers, want[batch.batch_id].layers, strict=True):
            np.testing.assert_array_equal(mine.adj.to_scipy().toarray(), other.adj.to_scipy().toarray())


# ----------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("sampler", [NearUniform([4, 3]), SumSampler([60, 40]), OwnLayerwise([60, 40])], ids=repr)
def test_training_on_ranks(sampler):
    """One rank of a distributed graph has the losses of a local one; two ranks have the same as each other."""
    pytest.importorskip("torch")
    from training_cases import DATA, Seen, on_ranks

    from spsample.training import ModelConfig, TrainConfig, Trainer

    def losses_of(data):
        seen = Seen()
        config = TrainConfig(epochs=2, batch_size=32, bulk_size=8)
        result = Trainer(data, sampler, ModelConfig(hidden=8, dropout=0.0), config, [seen]).fit()
        return seen.losses, result.test

    alone = losses_of(DATA)
    assert np.isfinite(alone[0]).all()
    for kind in ("replicated", "partitioned"):
        (one,) = run_threads(1, lambda comm, kind=kind: losses_of(on_ranks(comm, 1, kind)))
        assert one[0] == alone[0]
        both = run_threads(2, lambda comm, kind=kind: losses_of(on_ranks(comm, 1, kind)))
        assert both[0] == both[1]
        assert np.isfinite(both[0][0]).all()
