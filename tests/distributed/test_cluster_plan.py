"""Plans for clusters: what fits, what is recommended, and the command."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.data import load_dataset, planted
from spsample.errors import CapacityError, InputError
from spsample.planning.cluster import Cluster, Job, plan_cluster
from spsample.planning.cluster.computation import Computation, Timed, Trials, trial_batches
from spsample.planning.cluster.counting import count_bulk
from spsample.planning.cluster.exchanges import ring_reduction
from spsample.planning.cluster.grid_shape import GridShape
from spsample.planning.cluster.network import NETWORKS, network_named
from spsample.planning.cluster.pilot import sample_pilot, scaled_pilot
from spsample.planning.cluster.rank_memory import block_row_bytes, buffer_bytes, feature_block_bytes
from spsample.planning.cluster.wire_widths import WireWidths
from spsample.planning.graph_profile import GraphProfile
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
        *(("cores", wrong) for wrong in (0, -1, float("nan"), float("inf"), True, "2")),
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

    return sum(_Planned(PILOT, CLUSTER, Job(), GridShape(8, c))._of_bulk(bulk_size)[0].values())


def test_a_bulk_size_that_is_asked_for_is_taken_or_refused():
    found = plan_cluster(PILOT, CLUSTER, replication=2).grids[0]
    (grid,) = plan_cluster(PILOT, CLUSTER, Job(bulk_size=24), replication=2).grids
    assert (grid.fits, grid.bulk_size, grid.largest_bulk_size) == (True, 24, found.largest_bulk_size)
    assert grid.memory_bytes == _memory(24, 2)
    steps = 10 * 3 + 2  # 256 batches: ten bulks of three batches a rank, and one of two
    messages = {one.phase: one.messages_max for one in plan_cluster(PILOT, CLUSTER, Job(bulk_size=24)).grids[0].phases}
    assert messages["features"] == pytest.approx(2 * 7 * steps)
    whole = plan_cluster(PILOT, CLUSTER, Job(bulk_size=10**6), replication=2).grids[0]
    assert whole.bulk_size == PILOT.num_batches
    small = replace(CLUSTER, memory_per_rank=_memory(16, 2))
    (refused,) = plan_cluster(PILOT, small, Job(bulk_size=64), replication=2).grids
    assert not refused.fits
    assert refused.phases == ()
    assert re.match(r"a bulk of 64 takes .* MiB: bulks", refused.refusal)
    assert 16 <= refused.largest_bulk_size < 64
    with pytest.raises(InputError, match="bulk_size: got 0"):
        Job(bulk_size=0)


def test_hubs_save_traffic_and_take_memory():
    without, with_hubs = (
        plan_cluster(PILOT, CLUSTER, Job(hub_budget=budget), replication=2).grids[0] for budget in (0, 100_000)
    )
    assert with_hubs.memory["hub rows"] == 100_000
    rows = [next(p for p in one.phases if p.phase == "rows") for one in (without, with_hubs)]
    assert rows[1].received_mean < 0.85 * rows[0].received_mean


def test_slower_links_take_longer():
    fast, slow = (
        plan_cluster(PILOT, replace(CLUSTER, network=NETWORKS[name]), replication=2).grids[0].seconds
        for name in ("perlmutter", "ethernet")
    )
    assert slow > 2 * fast


@pytest.mark.parametrize("algorithm", ["column", "stages", "oblivious"])
def test_what_ranks_compute_is_a_phase(algorithm):
    job = Job(algorithm)
    without = plan_cluster(PILOT, CLUSTER, job, replication=2)
    plan = plan_cluster(PILOT, CLUSTER, job, replication=2, computation=True)
    (grid,), (silent,) = plan.grids, without.grids
    assert (grid.phases[0].phase, grid.phases[0].received_max, grid.phases[0].messages_max) == ("computation", 0, 0)
    assert 0 < grid.phases[0].seconds < grid.seconds
    assert {one.phase for one in silent.phases} == {one.phase for one in grid.phases[1:]}
    assert (plan.timed, without.timed) == ("sampling and communication", "communication")


def test_ranks_that_share_a_core_compute_longer():
    cost = Computation(per_bulk=1e-3, per_batch=1e-2, per_byte=1e-6)
    alone = cost.seconds(4, 1000, threads=2, cores=2)
    assert alone == pytest.approx(1e-3 + (4e-2 + 1e-3) / 2)  # what a bulk takes in any case is of one thread
    assert cost.seconds(4, 1000, threads=1, cores=1) == pytest.approx(0.042)
    assert cost.seconds(4, 1000, threads=2, cores=0.5) == pytest.approx(2 * 0.042)


def test_ranks_wait_for_the_one_that_computes_most():
    cost = Computation(0.0, 1.0, 0.0, unevenness=1.5)
    assert cost.seconds(2, 0, threads=1, cores=1) == 3
    assert cost.seconds(2, 0, threads=2, cores=2) == 1.5
    assert cost.seconds(2, 0, threads=1, cores=0.5) == 4  # the cores are busy with others meanwhile


def test_costs_are_fitted_to_bulks_of_each_size():
    timed = [Timed(m, 100.0 * m**0.5, (0.01 * m + 0.003 * m**0.5,) * 2) for m in (1, 2, 6)]
    fitted = Computation.fitted(timed)
    assert (fitted.per_bulk, fitted.per_batch) == pytest.approx((0, 0.01), abs=1e-9)
    assert (fitted.per_byte, fitted.unevenness) == pytest.approx((3e-5, 1))


def test_the_largest_bulk_of_a_trial_is_as_large_as_may_be():
    """At most as many batches as a rank has in an epoch, and as many as fit; one batch in any case."""
    assert [trial_batches(most, lambda m: True) for most in (1, 2, 3, 5, 16, 1000)] == [
        [1],
        [1, 2],
        [1, 3],
        [1, 2, 5],
        [1, 4, 16],
        [1, 4, 16],
    ]
    assert trial_batches(1000, lambda m: m <= 8) == [1, 2, 8]
    assert trial_batches(7, lambda m: m <= 4) == [1, 3]
    assert trial_batches(1000, lambda m: False) == [1]


@pytest.mark.parametrize("batches", [1, 3, 40])
def test_epochs_of_few_batches_are_tried_with_as_many(batches, monkeypatch):
    """As many batches as a rank has in an epoch, and no more; costs that one size does not tell apart are finite."""
    sizes = []
    timed = Trials._timed
    monkeypatch.setattr(Trials, "_timed", lambda *args: sizes.extend(map(len, args[2])) or timed(*args))
    pilot = sample_pilot(GRAPH, np.arange(16 * batches), sp.GraphSAGE([6, 4]), batch_size=16)
    plan = plan_cluster(pilot, replace(CLUSTER, ranks=2), replication=1, computation=True)
    assert max(sizes) == 2 * 16 * min(-(-batches // 2), 16)
    assert 0 < plan.grids[0].phases[0].seconds < 10


@pytest.mark.parametrize("seconds", [(0.0, 0.0), (0.0, 1.0)])
def test_bulks_of_less_than_a_tick_of_the_clock(seconds):
    fitted = Computation.fitted([Timed(m, 0.0, (0.0, 0.0)) for m in (1, 2)] + [Timed(6, 0.0, seconds)])
    assert np.isfinite([fitted.per_bulk, fitted.per_batch, fitted.per_byte]).all()
    assert fitted.unevenness == (2 if seconds[1] else 1)


@pytest.mark.parametrize(
    ("algorithm", "kilobytes", "fits"), [("stages", 1024, False), ("column", 1024, True), ("column", 8, False)]
)
def test_a_trial_that_may_not_fit_is_refused(monkeypatch, algorithm, kilobytes, fits):
    """No rows of A are sent by "column", but its bulks take memory, too."""
    monkeypatch.setattr("spsample.planning.cluster.computation.available_memory", lambda: kilobytes << 10)
    if fits:
        assert plan_cluster(PILOT, CLUSTER, Job(algorithm), replication=2, computation=True).grids
        return
    with pytest.raises(CapacityError, match=r"computation: got .* of memory; expected .*--no-computation"):
        plan_cluster(PILOT, CLUSTER, Job(algorithm), replication=2, computation=True)


def test_bulks_of_a_trial_that_do_not_fit_are_left_out(monkeypatch):
    timed = []
    monkeypatch.setattr("spsample.planning.cluster.computation.available_memory", lambda: free)
    monkeypatch.setattr(Trials, "_timed", lambda _, shape, bulks: timed.append(len(bulks)) or [(1.0,)] * len(bulks))
    trials, shape = Trials(PILOT, "column", WireWidths.of(4, 0, "unweighted", edge_ids=False)), GridShape(4)
    for batches, sizes in ((1, 1), (2, 2), (6, 3)):
        free = trials._memory(shape, batches)
        trials(shape)
        assert timed.pop() == sizes


def test_trials_of_a_scaled_graph_stand_for_larger_batches():
    sizes = {"num_nodes": 4 * GRAPH.num_nodes, "num_edges": 4 * GRAPH.num_edges, "num_seeds": 4096}
    pilot = scaled_pilot(GRAPH, sp.GraphSAGE([6, 4]), **sizes, batch_size=64)
    plan = plan_cluster(pilot, CLUSTER, replication=1, computation=True)
    assert plan.grids[0].phases[0].seconds > 0


def test_nothing_fits():
    plan = plan_cluster(PILOT, replace(CLUSTER, memory_per_rank=1 << 20))
    assert not any(one.fits for one in plan.grids)
    with pytest.raises(CapacityError, match=r"memory_per_rank: got 1.00 MiB; expected at least .*, which c = 1 takes"):
        _ = plan.recommended


def test_huge_clusters_are_planned_where_the_table_is_small_enough():
    plan = plan_cluster(PILOT, replace(CLUSTER, ranks=4096))
    assert plan.left_out == (1, 2)
    with pytest.raises(CapacityError, match="ranks: got 4096 with c = 1"):
        plan_cluster(PILOT, replace(CLUSTER, ranks=4096), replication=1)


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
            sample_pilot(GRAPH, range(1024), sampler, batch_size=16, feature_bytes=40), CLUSTER, Job(algorithm)
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
    assert re.search(r"take c = [124] and bulks of", result.stdout)  # by measured times
    assert [phase in result.stdout for phase in ("computation", "rows", "features", "status")] == [True] * 4
    assert "of sampling and communication an epoch" in result.stdout
    alone = run("plan", "planted:2000", "--ranks", "4", "--batch-size", "64", "--no-computation")
    assert "computation" not in alone.stdout
    assert "take c = 4 and bulks of" in alone.stdout  # by counts, which no load of this machine changes
    assert "of communication an epoch" in alone.stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("planted:2000", "--ranks", "2"), "spsample launch -n 2 train planted:2000 --fanouts 15,10"),
        (("planted:2000", "--ranks", "8"), "sbatch -N 2 -n 8 scripts/slurm/run.sh spsample train planted:2000"),
        (
            ("planted:2000", "--ranks", "2", "--sampler", "ladies", "--layer-sizes", "64,32", "--prefetch", "0"),
            "spsample launch -n 2 train planted:2000 --sampler ladies --layer-sizes 64,32 --batch-size 1024",
        ),
        (
            ("--ranks", "2", "--like", "planted", "--num-nodes", "4000", "--average-degree", "5", "--hidden", "16"),
            "spsample launch -n 2 train GRAPH",
        ),
    ],
)
def test_a_plan_ends_with_the_line_that_trains_so(words, line):
    result = run("plan", *words, "--no-computation")
    assert result.exit_code == 0, result.output
    last = " ".join(result.stdout[result.stdout.index("take c = ") :].split("\n", 1)[1].replace("\\\n", "").split())
    assert last.startswith(line), last
    options = last.split()
    for option in ("--replication", "--hidden", "--prefetch", "--algorithm"):
        if option in words:
            assert options[options.index(option) + 1] == words[words.index(option) + 1]


@pytest.mark.parametrize("words", [("planted:2000", "--algorithm", "oblivious"), ("plain",)])
def test_a_plan_of_what_cannot_be_trained_has_no_such_line(words, tmp_path):
    """A baseline of measurements; a graph without features, labels and split."""
    if words == ("plain",):
        load_dataset("planted:2000").graph.save(tmp_path / "plain")
        words = (str(tmp_path / "plain"),)
    result = run("plan", *words, "--ranks", "2", "--no-computation", "--batch-size", "256")
    assert result.exit_code == 0, result.output
    assert "take c = " in result.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.needs("mpi")
def test_the_line_trains(tmp_path):
    from spsample.data import save_dataset

    save_dataset(planted(1000), tmp_path / "a graph")
    result = run("plan", str(tmp_path / "a graph"), "--ranks", "2", "--no-computation", "--batch-size", "64")
    line = shlex.split(result.stdout[result.stdout.index("spsample launch") :].replace("\\\n", ""))
    done = subprocess.run(
        [sys.executable, "-m", "spsample.cli.main", *line[1:], "--epochs", "1"], capture_output=True, text=True
    )
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


@pytest.mark.parametrize("kind", ["rmat", "planted"])
def test_a_graph_that_is_not_here(kind):
    options = ["--like", kind, "--num-nodes", "100000000", "--average-degree", "16", "--ranks", "64", "--json"]
    facts = json.loads(run("plan", *options, "--feature-bytes", "512", "--num-seeds", "1000000").stdout)
    assert (facts["num_nodes"], facts["num_edges"]) == (10**8, 16 * 10**8)
    assert facts["num_batches"] == 977
    assert facts["grids"][0]["memory"]["features"] == pytest.approx(512 * 10**8 / 64, rel=1e-6)


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
        (["rmat:8,4", "--ranks", "4", "--cores-per-rank", "0"], "--cores-per-rank: got 0"),
        (["rmat:8,4", "--ranks", "4", "--algorithm", "row"], "--algorithm: got 'row'"),
        (["rmat:8,4", "--ranks", "4", "--algorithm", "stages-split"], "--algorithm: got 'stages-split'"),
        (["rmat:8,4", "--ranks", "4", "--replicate-hubs", "all"], "--replicate-hubs: got 'all'"),
        (["rmat:8,4", "--ranks", "4", "--memory-budget", "1GiB"], "--memory-budget: got 1GiB with --ranks"),
        (["rmat:8,4", "--ranks", "4", "--bulk-size", "8"], "--bulk-size: got 8 with --ranks"),
        (["rmat:8,4", "--ranks", "4", "--num-nodes", "8"], "--num-nodes: got 8 with a data set"),
        (["rmat:8,4", "--ranks-per-node", "4"], "--ranks-per-node: got 4 without --ranks"),
        (["--like", "rmat"], "--like: got rmat without --ranks"),
        (["--like", "web", "--ranks", "4"], "--like: got 'web'; expected one of rmat, planted"),
        (["--like", "rmat", "--ranks", "4"], "--num-nodes: got none with --like rmat"),
        (["--like", "rmat", "--num-nodes", "9", "--ranks", "4"], "--average-degree: got none with --like rmat"),
        (
            ["--like", "rmat", "--num-nodes", "9", "--average-degree", "9", "--ranks", "4"],
            "--average-degree: got 9 for 9",
        ),
        (["--ranks", "4"], "SOURCE: got none"),
        ([], "SOURCE: got none"),
    ],
)
def test_errors_name_the_option(arguments, words, capfd):
    result = run("plan", *arguments)
    assert result.exit_code == 2
    assert words in result.output + capfd.readouterr().err
