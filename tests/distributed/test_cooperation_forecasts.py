"""What a plan says of cooperative and of independent batches, beside counts of the steps of real loaders."""

from __future__ import annotations

import numpy as np
import pytest

import spsample as sp
from spsample.comm import Recorder, run_threads
from spsample.data import load_dataset, partition_vertices
from spsample.distributed.cooperative import owners_of
from spsample.planning.cluster import Cluster, network_named, plan_cooperation, sample_pilot

HIDDEN = 128
ROW_BYTES = ACTIVATION_BYTES = 4 * HIDDEN


def counts_of_steps(loader, comm, count):
    """What `count` says of a batch, the mean over steps in which every rank has one."""
    counts = np.array([count(batch) for batch in loader][: loader.num_batches // comm.size])
    loader.close()
    return counts.mean(axis=0)


def independent(comm, graph, seeds, sampler, parts, **options):
    """Rows, edges and bytes of a rank with a batch of its own."""
    loader = sp.BulkLoader(sp.ReplicatedGraph(graph, comm), seeds, sampler, bulk_size=comm.size, **options)
    owners = owners_of(loader.graph, parts)

    def count(batch):
        remote = np.count_nonzero(owners.of(batch.src_nodes) != comm.rank)
        return len(batch.src_nodes), sum(layer.adj.nnz for layer in batch.layers), remote * ROW_BYTES

    return counts_of_steps(loader, comm, count)


def cooperative(comm, graph, seeds, sampler, parts, batch_size, **options):
    """Rows, edges and bytes of a rank with its part of a batch of p times the seeds."""
    sizes = sampler.sizes if sampler.kind == "node-wise" else [comm.size * size for size in sampler.sizes]
    options |= {"batches": "cooperative", "parts": parts, "batch_size": comm.size * batch_size, "bulk_size": comm.size}
    recorder = Recorder(comm)
    loader = sp.BulkLoader(sp.ReplicatedGraph(graph, recorder), seeds, sampler.with_sizes(sizes), **options)
    steps, totals = 0, np.zeros(3)
    for batch in loader:
        received = [int(layer.routes.recv_counts.sum()) for layer in batch.layers]
        sent = [int(layer.routes.send_counts.sum()) for layer in batch.layers]
        moved = received[0] * ROW_BYTES + (sum(received[1:]) + sum(sent[1:])) * ACTIVATION_BYTES
        totals += [len(batch.src_nodes), sum(layer.adj.nnz for layer in batch.layers), moved]
        steps += 1
    loader.close()
    totals[2] += recorder.traffic.phases["pieces"].bytes_received
    return totals / steps


def assert_near(graph, seeds, sampler, batch_size, p, owners="hash"):
    """Forecasts within 5 % of the counts, those of the busiest rank within 10 %."""
    parts = None if owners == "hash" else partition_vertices(graph, p, owners, seeds=seeds)
    pilot = sample_pilot(graph, seeds, sampler, batch_size=batch_size, feature_bytes=ROW_BYTES)
    cluster = Cluster(p, 10**11, network_named("ethernet"), ranks_per_node=1)
    plan = plan_cooperation(pilot, cluster, hidden=HIDDEN, parts=parts)
    given = (graph, seeds, sampler, parts)
    options = {"batch_size": min(batch_size, len(seeds) // p), "drop_last": True, "prefetch": 0, "random_seed": 7}
    alone = np.array(run_threads(p, lambda comm: independent(comm, *given, **options))).mean(axis=0)
    ranks = np.array(run_threads(p, lambda comm: cooperative(comm, *given, **options)))
    one, shared = plan.independent, plan.cooperative
    assert (one.rows, one.edges, one.phases["features"]) == pytest.approx(tuple(alone), rel=0.05)
    assert (shared.rows, shared.edges, shared.received) == pytest.approx(tuple(ranks.mean(axis=0)), rel=0.05)
    assert shared.most_edges == pytest.approx(ranks[:, 1].max(), rel=0.1)
    return plan


def graph_and_seeds(spec):
    graph = load_dataset(spec).graph
    return graph, np.flatnonzero(graph.in_degrees())


@pytest.mark.parametrize("owners", ["hash", "metis"])
@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("scale", [10, 11, 12])
def test_a_forecast_is_near_what_is_counted(scale, p, owners):
    assert_near(*graph_and_seeds(f"rmat:{scale},8"), sp.GraphSAGE([10, 5]), 32, p, owners)


@pytest.mark.parametrize(
    "sampler",
    [
        sp.GraphSAGE([8, 5, 3]),
        sp.GraphSAGE([5, -1]),
        sp.GraphSAGE([10, 5], layout="subgraph"),
        sp.LADIES([64, 64]),
        sp.FastGCN([64, 64]),
    ],
    ids=["three layers", "whole rows", "subgraph", "LADIES", "FastGCN"],
)
def test_of_every_sampler(sampler):
    assert_near(*graph_and_seeds("rmat:12,8"), sampler, 32, 4)


def test_a_share_falls_as_counted_where_an_epoch_is_one_step():
    plan = assert_near(*graph_and_seeds("rmat:10,8"), sp.GraphSAGE([10, 5]), 10**6, 4)
    assert plan.saved_rows > 0.6


@pytest.mark.realdata
@pytest.mark.parametrize("p", [2, 4, 8])
def test_on_tolokers(p, data_dir):
    graph, vertices = graph_and_seeds(str(data_dir / "tolokers.npz"))
    seeds = np.sort(np.random.default_rng(0).choice(vertices, len(vertices) // 10, replace=False))
    assert_near(graph, seeds, sp.GraphSAGE([15, 10, 5]), 1024, p)
