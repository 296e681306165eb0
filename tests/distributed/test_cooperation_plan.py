"""Plans for cooperative batches: what they count by hand, what they say, and the command."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.comm import Recorder, run_threads
from spsample.distributed.cooperative import owners_of
from spsample.errors import InputError
from spsample.planning.cluster import (
    Cluster,
    CooperationPlan,
    StepLoad,
    network_named,
    plan_cooperation,
    sample_pilot,
    scaled_pilot,
)
from spsample.planning.cluster.step_counts import cooperative_step

DATA = sp.load_dataset("rmat:10,8")
GRAPH = DATA.graph
CLUSTER = Cluster(4, 10**9, network_named("ethernet"), ranks_per_node=1)
RING = sp.Graph.from_edge_index([np.arange(1, 9) % 8, np.arange(8)], num_nodes=8)  # v reads from v + 1


def pilot_of(graph=GRAPH, sampler=None, batch_size=32, seeds=None, feature_bytes=400):
    seeds = np.arange(graph.num_nodes) if seeds is None else seeds
    sampler = sp.GraphSAGE([5, 5]) if sampler is None else sampler
    return sample_pilot(graph, seeds, sampler, batch_size=batch_size, feature_bytes=feature_bytes)


# --------------------------------------------------------------------------------------------------------------- counts


def test_a_ring_by_hand():
    pilot = pilot_of(RING, sp.GraphSAGE([1, 1]), batch_size=4, feature_bytes=100)
    plan = plan_cooperation(pilot, replace(CLUSTER, ranks=2), hidden=3, parts=np.arange(8) // 4)
    shared = plan.cooperative
    assert (plan.step_seeds, plan.owners, plan.pilot_steps) == (8, "parts", 1)  # the whole ring, half of it a rank's
    assert (shared.rows, shared.most_rows, shared.edges, shared.most_edges) == (4, 4, 8, 8)
    assert shared.phases["batch activations"] == 100 + 12  # one vertex of the other rank in each layer
    assert shared.phases["batch gradients"] == 12  # none of the features
    alone = plan.independent
    assert alone.phases["features requests"] == 4 * alone.rows / 2  # half of a batch's rows are the other rank's
    assert alone.phases["features"] == 100 * alone.rows / 2
    assert shared.received == sum(shared.phases.values())


def test_time_counts_a_message_for_each_exchange():
    slow = network_named("ethernet", alpha="1s", bandwidth="1000GB/s")
    plan = plan_cooperation(pilot_of(sampler=sp.GraphSAGE([5, 5, 5])), replace(CLUSTER, network=slow), hidden=8)
    assert plan.independent.seconds == pytest.approx(2 * 3, rel=1e-3)  # ids and rows, 3 other ranks
    assert plan.cooperative.seconds == pytest.approx((1 / 4 + 3 + 2) * 3, rel=1e-3)


def test_a_wider_model_moves_more_and_computes_the_same():
    pilot = pilot_of()
    narrow, wide = (plan_cooperation(pilot, CLUSTER, hidden=h) for h in (8, 16))
    assert wide.independent == narrow.independent
    assert wide.cooperative.phases["batch gradients"] == 2 * narrow.cooperative.phases["batch gradients"]
    assert (wide.cooperative.rows, wide.cooperative.edges) == (narrow.cooperative.rows, narrow.cooperative.edges)


def test_without_features_none_are_asked_for():
    alone = plan_cooperation(pilot_of(feature_bytes=0), CLUSTER, hidden=8).independent
    assert (alone.phases, alone.received, alone.seconds) == ({}, 0, 0)


def test_bytes_are_those_that_training_records():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from spsample.training import BlockMaker, CooperativeGradients, ModelConfig, build_model

    data, sampler, hidden = sp.load_dataset("planted:4000"), sp.GraphSAGE([10, 5]), 16

    def body(comm):
        recorder = Recorder(comm)
        graph = sp.ReplicatedGraph(data.graph, recorder)
        options = {"batch_size": 256, "bulk_size": 4, "random_seed": 7, "drop_last": True, "prefetch": 0}
        loader = sp.BulkLoader(graph, data.train_idx, sampler, batches="cooperative", features=data.x, **options)
        blocks = BlockMaker(graph, sampler)
        model = build_model(data.x.shape[1], data.num_classes, 2, ModelConfig(hidden=hidden, dropout=0.0))
        gradients = CooperativeGradients(model, recorder)
        for batch in loader:
            with blocks.step():
                loss = model(*blocks.inputs(batch, model)).square().sum()
                gradients.prepare(loss, 1.0)
            gradients.finish(loss, len(batch.seeds))
        steps = loader.num_batches
        loader.close()
        return {name: one.bytes_received / steps for name, one in recorder.traffic.phases.items()}

    torch.manual_seed(0)
    recorded = run_threads(4, body, 60.0)
    pilot = pilot_of(data.graph, sampler, 64, data.train_idx, feature_bytes=4 * data.x.shape[1])
    for name, forecast in plan_cooperation(pilot, CLUSTER, hidden=hidden).cooperative.phases.items():
        assert forecast == pytest.approx(np.mean([one[name] for one in recorded]), rel=0.03)


def test_lengths_of_sampled_rows_do_not_grow_with_the_batch():
    bulk = sp.bulk_sample(RING, np.arange(8), sp.GraphSAGE([1, 1]), batch_size=8)
    step = cooperative_step(bulk, owners_of(RING, ranks=4), row_bytes=100, activation_bytes=12)
    assert step.header_bytes == 8 * (4 + 2 * (3 + 2 * 4)) * 3 / 4  # of a batch and of two layers, from 3 of 4 ranks
    few, many = (one.exchanges[0].received.mean() for one in (step, step.scaled(10)))
    assert many - step.header_bytes == pytest.approx(10 * (few - step.header_bytes))


def test_a_larger_graph_has_ranks_that_differ_less():
    bulk = sp.bulk_sample(GRAPH, np.arange(64), sp.GraphSAGE([5, 5]), batch_size=64)
    step = cooperative_step(bulk, owners_of(GRAPH, ranks=8), row_bytes=100, activation_bytes=12)
    for one, other in zip((step.rows, step.edges), (step.scaled(100).rows, step.scaled(100).edges), strict=True):
        assert other.mean() == pytest.approx(100 * one.mean())
        assert other.std() == pytest.approx(10 * one.std())
    gradients = [one.exchanges[2] for one in (step, step.scaled(100))]
    assert gradients[1].received.sum() == pytest.approx(100 * gradients[0].received.sum())
    assert gradients[1].messages.tolist() == gradients[0].messages.tolist()


@pytest.mark.parametrize(("scale", "near"), [(12, 0.1), (14, 0.03)])
@pytest.mark.parametrize("p", [4, 32])
def test_a_graph_that_is_not_here_has_the_shares_of_one_that_is(p, scale, near):
    sampler, size = sp.GraphSAGE([10, 5]), {"batch_size": 256, "feature_bytes": 512}
    large = sp.load_dataset("rmat:16,8").graph
    seeds = np.flatnonzero(np.diff(large.indptr))
    shape = {"num_nodes": large.num_nodes, "num_edges": large.num_edges, "num_seeds": len(seeds)}
    told = scaled_pilot(sp.load_dataset(f"rmat:{scale},8").graph, sampler, **shape, **size)
    known = sample_pilot(large, seeds, sampler, **size)
    told, known = (plan_cooperation(one, replace(CLUSTER, ranks=p), hidden=128) for one in (told, known))
    assert told.step_seeds == known.step_seeds == 256 * p
    assert 1 - told.saved_rows == pytest.approx(1 - known.saved_rows, rel=near)
    assert 1 - told.saved_edges == pytest.approx(1 - known.saved_edges, rel=near)


# -------------------------------------------------------------------------------------------------------------- verdict


def load(rows, edges, seconds, most_edges=None):
    most = edges if most_edges is None else most_edges
    return StepLoad(rows, edges, rows, most, {"features": 1024.0}, seconds)


@pytest.mark.parametrize(
    ("cooperative", "words"),
    [
        (load(50, 80, 0.5), "Cooperation pays: 50% fewer rows and 20% fewer edges a rank"),
        (load(50, 80, 2.0), "pays only where fetching a row and computing with its edges cost more than 20,000,000 ns"),
        (load(99, 99, 2.0), "Cooperation does not pay: 1% fewer rows and 1% fewer edges"),
        (load(99, 99, 0.5), "Cooperation pays: 1% fewer"),
        (load(100, 80, 2.0), "pays only where an edge costs more than 50,000,000 ns"),
        (load(50, 200, 0.5), "pays where the network takes the time: 50% fewer rows and 100% more edges"),
        (load(50, 200, 2.0), "only where fetching a row costs more than 20,000,000 ns, and further edges cost little"),
        (load(50, 80, 2.0, 112), "pays only where fetching a row costs more than 20,000,000 ns, and further edges"),
        (load(50, 80, 0.5, 112), "Cooperation pays where the network takes the time: 50% fewer rows"),
        (load(50, 80, 0.5, 112), "The busiest rank has 12% more edges than with a batch of its own."),
        (load(50, 80, 2.0), "1000.00 ms longer on this network"),
        (load(50, 80, 0.5), "1.00 KiB received a step in place of 1.00 KiB, 500.00 ms less on this network."),
    ],
)
def test_what_it_says(cooperative, words):
    assert words in CooperationPlan(400, "hash", 1, 4, load(100, 100, 1.0), cooperative).verdict


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("ranks", "options", "words"),
    [
        (1, {"hidden": 8}, "ranks: got 1; expected 2 to 1024 for cooperative batches"),
        (1025, {"hidden": 8}, "ranks: got 1025"),
        (4, {"hidden": 0}, "hidden: got 0"),
        (4, {"hidden": 10**400}, "hidden: got 1000"),
        (4, {"hidden": 8, "parts": np.zeros(5, np.int64)}, r"parts: got dtype int64 and shape \(5,\)"),
        (4, {"hidden": 8, "parts": np.arange(1024) % 3}, "parts: got parts from 0 to 2 on 4 ranks"),
    ],
)
def test_bad_input_is_named(ranks, options, words):
    with pytest.raises(InputError, match=words):
        plan_cooperation(pilot_of(), replace(CLUSTER, ranks=ranks), **options)


def test_fewer_seeds_than_ranks():
    with pytest.raises(InputError, match="seeds: got 3 for 4 ranks"):
        plan_cooperation(pilot_of(seeds=[1, 2, 3]), CLUSTER, hidden=8)


def test_a_sampler_without_targets():
    with pytest.raises(InputError, match="include_targets=True for cooperative batches"):
        plan_cooperation(pilot_of(sampler=sp.LADIES([16, 16], include_targets=False)), CLUSTER, hidden=8)


# ---------------------------------------------------------------------------------------------------------- the command


def run(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)], env={"COLUMNS": "160"})


OPTIONS = ("rmat:10,8", "--fanouts", "5,5", "--batch-size", 32, "--feature-bytes", 400, "--network", "ethernet")


def test_the_command_prints_a_table_and_a_sentence():
    result = run(*OPTIONS, "--ranks", 4, "--hidden", 16)
    assert result.exit_code == 0
    plan = plan_cooperation(pilot_of(seeds=DATA.train_idx), CLUSTER, hidden=16)
    assert "Cooperative batches, owners by hash: a rank's part of a step of 128 seeds" in result.stdout
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    for name, one in (("independent", plan.independent), ("cooperative", plan.cooperative)):
        assert lines[name].split()[1:5] == [
            f"{number:,.0f}" for number in (one.rows, one.most_rows, one.edges, one.most_edges)
        ]
    assert plan.verdict in " ".join(result.stdout.split())


def test_json(tmp_path):
    np.save(tmp_path / "parts.npy", np.arange(1024) % 4)
    options = ("--hidden", 16, "--partition", tmp_path / "parts.npy", "--json")
    facts = json.loads(run(*OPTIONS, "--ranks", 4, *options).stdout)["cooperation"]
    assert (facts["owners"], facts["step_seeds"], facts["feature_bytes"]) == ("parts", 128, 400)
    assert set(facts["independent"]["phases"]) == {"features requests", "features"}
    assert set(facts["cooperative"]["phases"]) == {"pieces", "batch activations", "batch gradients"}
    assert facts["cooperative"]["received"] == pytest.approx(sum(facts["cooperative"]["phases"].values()))
    assert facts["verdict"].startswith("Cooperation ")


def test_without_a_width_nothing_is_said():
    result = run(*OPTIONS, "--ranks", 4)
    assert "Cooperat" not in result.stdout
    assert json.loads(run(*OPTIONS, "--ranks", 4, "--json").stdout)["cooperation"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ranks", 1, "--hidden", 16], "--ranks: got 1; expected 2 to 1024 for cooperative batches"),
        (["--ranks", 4, "--hidden", 0], "--hidden: got 0"),
        (["--ranks", 4, "--hidden", 10**400], "--hidden: got 1000"),
        (["--ranks", 4, "--partition", "SHORT"], "--partition: got it without --hidden"),
        (["--ranks", 4, "--hidden", 16, "--partition", "NONE"], "--partition: got '"),
        (["--ranks", 4, "--hidden", 16, "--partition", "SHORT"], "--partition: got dtype int64 and shape (5,)"),
    ],
)
def test_errors_name_the_option(options, words, tmp_path, capfd):
    np.save(tmp_path / "short.npy", np.zeros(5, np.int64))
    files = {"SHORT": tmp_path / "short.npy", "NONE": tmp_path / "none.npy"}
    result = run(*OPTIONS, *(files.get(one, one) for one in options))
    assert result.exit_code == 2
    assert words in " ".join((result.output + capfd.readouterr().err).split())


def test_a_width_is_for_a_cluster(capfd):
    result = run("rmat:10,8", "--hidden", 16)
    assert result.exit_code == 2
    assert "--hidden: got 16 without --ranks" in result.output + capfd.readouterr().err


def test_parts_are_of_a_graph_that_is_here(tmp_path, capfd):
    np.save(tmp_path / "parts.npy", np.arange(8))
    size = ("--like", "rmat", "--num-nodes", 10**6, "--average-degree", 8, "--ranks", 4)
    result = run(*size, "--hidden", 8, "--partition", tmp_path / "parts.npy")
    assert result.exit_code == 2
    assert "--partition: got it with --like" in result.output + capfd.readouterr().err
