"""Plans for clusters: what fits, what is recommended, and the command."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from counted_bulks import count_bulk
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import run_ranks
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.data import load_dataset, planted
from spsample.errors import CapacityError, InputError
from spsample.planning.bulk_counts import GraphProfile
from spsample.planning.cluster import Cluster, plan_cluster
from spsample.planning.cluster.exchanges import NETWORKS, GridShape, network_named, ring_reduction
from spsample.planning.cluster.pilot import sample_pilot, scaled_pilot
from spsample.planning.cluster.plan import block_row_bytes, buffer_bytes, feature_block_bytes
from spsample.sampling import LayerwiseSampler

GRAPH = sp.load_dataset("rmat:12,16").graph
PILOT = sample_pilot(GRAPH, np.arange(4096), sp.GraphSAGE([6, 4]), batch_size=16, feature_bytes=400)
CLUSTER = Cluster(8, 10**9, NETWORKS["perlmutter"], ranks_per_node=4, threads=2)


def test_parts_of_the_graph_by_hand():
    graph = sp.Graph([0, 4, 5, 6, 8], np.array([0, 1, 2, 3, 0, 0, 0, 1], np.int32))
    bulk = sp.bulk_sample(graph, [0, 1], sp.GraphSAGE([2]), batch_size=1)
    counts = count_bulk(graph, bulk, GridShape(2))  # two rows each
    profile = GraphProfile.of(graph, feature_bytes=100)
    assert block_row_bytes(profile, counts) == max(4 * 5 + 8 * 3, 4 * 3 + 8 * 3) + 8 * 3
    assert feature_block_bytes(profile, GridShape(2)) == 200
    assert feature_block_bytes(profile, GridShape(8, 8)) == 400
    ring = ring_reduction("gradients", GridShape(2), 1000)
    assert buffer_bytes([ring.scaled(5)], steps=5) == 2000


@pytest.mark.parametrize(("vertices", "rows"), [(9, 3), (10, 4), (2, 1)])
def test_features_of_the_largest_block_are_counted(vertices, rows):
    assert feature_block_bytes(GraphProfile(vertices, 0, feature_bytes=100), GridShape(3)) == 100 * rows


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, wrong) for name in ("ranks", "memory_per_rank", "ranks_per_node", "threads") for wrong in (0, 1.5)),
        ("network", "ethernet"),
    ],
)
def test_clusters_that_there_are_not(name, wrong):
    with pytest.raises(InputError, match=f"{name}: got"):
        replace(CLUSTER, **{name: wrong})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ["ethernet"]}, "network: got"),
        ({"alpha": 3}, "alpha: got 3 of type int; expected a time"),
        ({"alpha": "0us"}, "alpha: got '0us'"),
        ({"alpha": "9" * 400 + "s"}, "alpha: got '999"),
        ({"bandwidth": "9" * 300 + "TB/s"}, "bandwidth: got '999"),
    ],
)
def test_networks_that_there_are_not(options, message):
    with pytest.raises(InputError, match=message) as found:
        network_named(**{"name": "ethernet", **options})
    assert len(str(found.value)) < 200


def test_every_divisor_is_planned():
    plan = plan_cluster(PILOT, CLUSTER)
    assert [one.shape.replication for one in plan.grids] == [1, 2, 4, 8]
    assert all(one.fits for one in plan.grids)
    assert plan.recommended.shape.replication == 8
    assert plan_cluster(PILOT, CLUSTER, replication=2).grids == plan.grids[1:2]


def test_more_replication_takes_more_memory_and_less_time():
    grids = plan_cluster(PILOT, CLUSTER).grids
    for one, other in pairwise(grids):
        assert one.memory["block row"] < other.memory["block row"]
        assert one.memory["features"] < other.memory["features"]
        assert sum(p.received_mean for p in one.phases) > sum(p.received_mean for p in other.phases)


@settings(max_examples=12)
@given(st.integers(20, 40), st.sampled_from([1, 2, 4, 8]))
def test_the_largest_bulk_fits_and_the_next_one_does_not(megabytes, c):
    cluster = replace(CLUSTER, memory_per_rank=megabytes << 20)
    (grid,) = plan_cluster(PILOT, cluster, replication=c).grids
    bytes_of = {k: _memory(k, c) for k in (8, 16, 64, 256)}
    assert list(bytes_of.values()) == sorted(bytes_of.values())
    fitting = [k for k, size in bytes_of.items() if size <= megabytes << 20]
    if not grid.fits:
        assert not fitting
        assert re.match(r"one batch per rank takes .* MiB: bulks .* MiB, ", grid.refusal)
        return
    k = grid.largest_bulk_size
    assert k == PILOT.num_batches or k % 8 == 0
    assert grid.bulk_size <= k
    assert max(fitting) <= k
    assert _memory(k, c) <= megabytes << 20
    assert k == PILOT.num_batches or _memory(k + 8, c) > megabytes << 20


def _memory(bulk_size, c):
    from spsample.planning.cluster.plan import _Planned

    return sum(_Planned(PILOT, CLUSTER, GridShape(8, c))._of_bulk(bulk_size)[0].values())


def test_a_bulk_size_that_is_asked_for_is_taken_or_refused():
    found = plan_cluster(PILOT, CLUSTER, replication=2).grids[0]
    (grid,) = plan_cluster(PILOT, replace(CLUSTER, bulk_size=24), replication=2).grids
    assert (grid.fits, grid.bulk_size, grid.largest_bulk_size) == (True, 24, found.largest_bulk_size)
    assert grid.memory_bytes == _memory(24, 2)
    steps = 10 * 3 + 2  # 256 batches: ten bulks of three batches a rank, and one of two
    messages = {
        one.phase: one.messages_max for one in plan_cluster(PILOT, replace(CLUSTER, bulk_size=24)).grids[0].phases
    }
    assert messages["features"] == pytest.approx(2 * 7 * steps)
    whole = plan_cluster(PILOT, replace(CLUSTER, bulk_size=10**6), replication=2).grids[0]
    assert whole.bulk_size == PILOT.num_batches
    small = replace(CLUSTER, memory_per_rank=_memory(16, 2), bulk_size=64)
    (refused,) = plan_cluster(PILOT, small, replication=2).grids
    assert not refused.fits
    assert refused.phases == ()
    assert re.match(r"a bulk of 64 takes .* MiB: bulks", refused.refusal)
    assert 16 <= refused.largest_bulk_size < 64
    with pytest.raises(InputError, match="bulk_size: got 0"):
        replace(CLUSTER, bulk_size=0)


def test_hubs_save_traffic_and_take_memory():
    without, with_hubs = (
        plan_cluster(PILOT, replace(CLUSTER, hub_budget=budget), replication=2).grids[0] for budget in (0, 100_000)
    )
    assert with_hubs.memory["hub rows"] == 100_000
    all_hubs = plan_cluster(PILOT, replace(CLUSTER, hub_budget=10**8), replication=2).grids[0]
    assert all_hubs.memory["hub rows"] == 4 * GRAPH.num_edges + 8
    rows = [next(p for p in one.phases if p.phase == "rows") for one in (without, with_hubs)]
    assert rows[1].received_mean < 0.85 * rows[0].received_mean


def test_slower_links_take_longer():
    fast, slow = (
        plan_cluster(PILOT, replace(CLUSTER, network=NETWORKS[name]), replication=2).grids[0].seconds
        for name in ("perlmutter", "ethernet")
    )
    assert slow > 2 * fast


def test_nothing_fits():
    plan = plan_cluster(PILOT, replace(CLUSTER, memory_per_rank=1 << 20))
    assert not any(one.fits for one in plan.grids)
    with pytest.raises(CapacityError, match=r"memory_per_rank: got 1.00 MiB; expected at least .*, which c = 1 takes"):
        _ = plan.recommended


def test_huge_clusters_are_planned_where_the_table_is_small_enough(monkeypatch):
    monkeypatch.setattr("spsample.planning.cluster.plan.MAX_CELLS", 1 << 14)
    plan = plan_cluster(PILOT, replace(CLUSTER, ranks=256))
    assert plan.left_out == (1, 2)
    with pytest.raises(CapacityError, match="ranks: got 256 with c = 1"):
        plan_cluster(PILOT, replace(CLUSTER, ranks=256), replication=1)


class OwnNodeWise(sp.Sampler):
    """As `GraphSAGE`, of which it is no subclass."""

    weighted = None
    product, layer = sp.GraphSAGE.product, sp.GraphSAGE.layer


class OwnLayerwise(LayerwiseSampler):
    """As `FastGCN`, of which it is no subclass."""

    draw_law, layer = sp.FastGCN.draw_law, sp.FastGCN.layer


OWN = pytest.mark.parametrize(
    ("own", "like"), [(OwnNodeWise([6, 4]), sp.GraphSAGE([6, 4])), (OwnLayerwise([48, 32]), sp.FastGCN([48, 32]))]
)


@OWN
@pytest.mark.parametrize("algorithm", ["column", "stages"])
def test_samplers_of_ones_own_are_planned_by_what_they_state(own, like, algorithm):
    plans = [
        plan_cluster(
            sample_pilot(GRAPH, range(1024), sampler, batch_size=16, feature_bytes=40),
            replace(CLUSTER, algorithm=algorithm),
        )
        for sampler in (own, like)
    ]
    assert plans[0].grids == plans[1].grids


@OWN
def test_a_graph_that_is_not_here_is_planned_for_samplers_of_ones_own(own, like):
    sizes = {"num_nodes": 4 * GRAPH.num_nodes, "num_edges": 4 * GRAPH.num_edges, "num_seeds": 4096}
    pilots = [scaled_pilot(GRAPH, sampler, **sizes, batch_size=64) for sampler in (own, like)]
    assert pilots[0].bulk.sampler.sizes == pilots[1].bulk.sampler.sizes
    assert plan_cluster(pilots[0], CLUSTER).grids == plan_cluster(pilots[1], CLUSTER).grids


@OWN
def test_bulks_of_samplers_of_ones_own_are_planned(own, like):
    plans = [sp.plan_bulk(GRAPH, range(1024), sampler, batch_size=16, memory_budget="64MiB") for sampler in (own, like)]
    assert [plan.bulk_size for plan in plans] == [64, 64]
    assert [plan.peak(9) for plan in plans] == [plans[0].peak(9)] * 2


# --------------------------------------------------------------------------------------------------------- the command


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


def test_the_command_prints_tables_and_what_to_take():
    result = run("plan", "planted:2000", "--ranks", "4", "--batch-size", "64", "--memory-per-rank", "1GB")
    assert result.exit_code == 0
    assert "4 ranks of 953.67 MiB on 1 node, network perlmutter, algorithm column" in result.stdout
    assert [phase in result.stdout for phase in ("rows", "features", "status")] == [True] * 3
    assert "take c = 4 and bulks of" in result.stdout
    assert "of communication an epoch" in result.stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("planted:2000", "--ranks", "2"), "spsample launch -n 2 train planted:2000 --fanouts 15,10"),
        (("planted:2000", "--ranks", "8"), "sbatch -N 2 -n 8 scripts/slurm/run.sh spsample train planted:2000"),
        (
            ("planted:2000", "--ranks", "2", "--sampler", "ladies", "--layer-sizes", "64,32", "--prefetch", "0"),
            "spsample launch -n 2 train planted:2000 --sampler ladies --layer-sizes 64,32 --batch-size 1024",
        ),
    ],
)
def test_a_plan_ends_with_the_line_that_trains_so(words, line):
    result = run("plan", *words)
    assert result.exit_code == 0, result.output
    last = " ".join(result.stdout[result.stdout.index("take c = ") :].split("\n", 1)[1].replace("\\\n", "").split())
    assert last.startswith(line), last
    options = last.split()
    for option in ("--replication", "--prefetch", "--algorithm"):
        if option in words:
            assert options[options.index(option) + 1] == words[words.index(option) + 1]


@pytest.mark.parametrize("words", [("planted:2000", "--algorithm", "oblivious"), ("plain",)])
def test_a_plan_of_what_cannot_be_trained_has_no_such_line(words, tmp_path):
    """A baseline of measurements; a graph without features, labels and split."""
    if words == ("plain",):
        load_dataset("planted:2000").graph.save(tmp_path / "plain")
        words = (str(tmp_path / "plain"),)
    result = run("plan", *words, "--ranks", "2", "--batch-size", "256")
    assert result.exit_code == 0, result.output
    assert "take c = " in result.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.needs("gloo")
def test_the_line_trains(tmp_path):
    from spsample.data import save_dataset

    save_dataset(planted(1000), tmp_path / "a graph")
    result = run("plan", str(tmp_path / "a graph"), "--ranks", "2", "--batch-size", "64")
    line = shlex.split(result.stdout[result.stdout.index("spsample launch") :].replace("\\\n", ""))
    assert line[1:4] == ["launch", "-n", "2"]
    done = run_ranks("gloo", 2, "-m", "spsample.cli.main", *line[4:], "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout


@pytest.mark.parametrize("sampler", ["graphsage", "ladies", "fastgcn"])
@pytest.mark.parametrize("algorithm", ["column", "stages", "oblivious"])
def test_json(tmp_path, sampler, algorithm):
    file = tmp_path / "plan.json"
    options = ["--ranks", "8", "--batch-size", "64", "--sampler", sampler, "--algorithm", algorithm, "-o", str(file)]
    facts = json.loads(run("plan", "rmat:11,8", *options, "--network", "ethernet", "--json").stdout)
    assert json.loads(file.read_text()) == facts
    assert facts["algorithm"] == algorithm
    assert [one["replication"] for one in facts["grids"]] == [1, 2, 4, 8]
    assert facts["recommended"]["replication"] in (1, 2, 4, 8)
    for grid in facts["grids"]:
        assert grid["memory"]["total"] == sum(size for name, size in grid["memory"].items() if name != "total")
        assert grid["seconds"] == pytest.approx(sum(phase["seconds"] for phase in grid["phases"].values()))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rmat:8,4", "--ranks", "0"], "--ranks: got 0"),
        (["rmat:8,4", "--ranks", "4", "--replication", "3"], "--replication: got c = 3 for p = 4 ranks"),
        (["rmat:8,4", "--ranks", "4", "--replication", "most"], "--replication: got 'most'"),
        (["rmat:8,4", "--ranks", "4", "--memory-per-rank", "much"], "--memory-per-rank: got 'much'"),
        (["rmat:8,4", "--ranks", "4", "--memory-per-rank", "1MB"], "--memory-per-rank: got 976.56 KiB"),
        (["rmat:8,4", "--ranks", "4", "--network", "radio"], "--network: got 'radio'"),
        (["rmat:8,4", "--ranks", "4", "--alpha", "2"], "--alpha: got '2'"),
        (["rmat:8,4", "--ranks", "4", "--bandwidth", "2GB"], "--bandwidth: got '2GB'"),
        (["rmat:8,4", "--ranks", "4", "--ranks-per-node", "0"], "--ranks-per-node: got 0"),
        (["rmat:8,4", "--ranks", "4", "--threads-per-rank", "0"], "--threads-per-rank: got 0"),
        (["rmat:8,4", "--ranks", "4", "--duplex", "2"], "--duplex: got 2"),
        *(
            (["rmat:8,4", "--ranks", "4", *words], f"{words[0]}: got a removed option; expected leave it out: ")
            for words in (["--computation"], ["--no-computation"], ["--cores-per-rank", "2"], ["--hidden", "8"])
        ),
        (
            ["rmat:8,4", "--ranks", "4", "--set", "hidden=8"],
            "--set: got hidden, a removed option; expected leave it out",
        ),
        (["rmat:8,4", "--ranks", "4", "--algorithm", "row"], "--algorithm: got 'row'"),
        (["rmat:8,4", "--ranks", "4", "--algorithm", "stages-split"], "--algorithm: got 'stages-split'"),
        (["rmat:8,4", "--ranks", "4", "--replicate-hubs", "all"], "--replicate-hubs: got 'all'"),
        (["rmat:8,4", "--ranks", "4", "--memory-budget", "1GiB"], "--memory-budget: got 1GiB with --ranks"),
        (["rmat:8,4", "--ranks", "4", "--bulk-size", "8"], "--bulk-size: got 8 with --ranks"),
        (["rmat:8,4", "--ranks-per-node", "4"], "--ranks-per-node: got 4 without --ranks"),
        (["--like", "rmat", "--ranks", "4"], "--like: got a removed option; expected leave it out: plan with"),
        (
            ["rmat:8,4", "--set", "num-nodes=8"],
            "--set: got num-nodes, a removed option; expected leave it out: plan with",
        ),
        (["--ranks", "4"], "Missing argument"),
        ([], "Missing argument"),
    ],
)
def test_errors_name_the_option(arguments, words, capfd):
    result = run("plan", *arguments)
    assert result.exit_code == 2
    assert words in result.output + capfd.readouterr().err
