"""What a trial of a workload says about caches, copies, partitions and bulks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import spsample as sp
from spsample.advice import (
    BEST,
    Loaded,
    NeededRows,
    advise,
    cache_report,
    entries_searched,
    lookahead_hits,
    lookahead_misses,
    received_bytes,
    static_hits,
    static_misses,
    unions,
)
from spsample.cli.main import app
from spsample.comm import Recorder, run_threads
from spsample.errors import DTypeError, InputError
from spsample.features import CachedFeatures, PartitionedFeatures, score
from spsample.sampling import Sampler
from spsample.sampling.workload import Workload
from spsample.sparse import extract, its_sample, normalize_rows

GRAPH = sp.load_dataset("rmat:10,8").graph
SEEDS = np.flatnonzero(np.diff(GRAPH.indptr))[::3]


def workload(**changes) -> Workload:
    given = {"graph": GRAPH, "seeds": SEEDS, "sampler": sp.GraphSAGE([4, 4]), "batch_size": 16}
    return Workload(**{**given, **changes})


def report_of(work, **options):
    return cache_report(work, 32, **{"bulk_size": 4, **options})


def needed_by(work, epochs) -> NeededRows:
    return Loaded(work, row_bytes=32, bulk_size=4).needed(epochs)


def test_a_report_has_every_cell():
    report = report_of(workload(), budgets=[0.1, 0.5], ranks=2)
    cells = {(one.score, one.replacement) for one in report.hits}
    assert {("posterior", "static"), ("posterior", "lookahead"), (BEST, "static"), ("out-degree", "static")} <= cells
    for one in report.hits:
        assert 0 <= one.hits <= 1
        assert one.replacement == "lookahead" or one.hits <= report.hit(BEST, "static", one.budget) + 1e-12
    assert report.hit("posterior", "lookahead", 0.1) >= report.hit("posterior", "static", 0.1)
    assert {one.method for one in report.copies} == {"best-copies", "interleaved", "replicated", "song-jiang"}
    by_method = {one.method: one.host_bytes + 0.5 * one.peer_bytes for one in report.copies}
    for one in report.copies:
        assert one.host_bytes + one.peer_bytes <= report.bytes_per_epoch * (1 + 1e-12)
    assert by_method["replicated"] == next(one for one in report.copies if one.method == "replicated").host_bytes
    compared = {(one.method, one.batches) for one in report.partitions if one.method != "metis-seeds"}
    assert compared == {(method, order) for method in ("ranges", "pagraph") for order in ("shuffled", "local")}
    assert report.first_aggregation.rows < 1
    json.dumps(report.as_dict())


def test_hits_are_counted_by_hand():
    trial = NeededRows([np.array([0, 1]), np.array([0, 2]), np.array([2, 3])], 1, 0)
    counts = trial.counts(4)
    assert [one.hits for one in static_hits("own", np.array([0.0, 3, 2, 1]), counts, [0.0, 0.25, 0.5, 1.0])] == [
        0,
        1 / 6,
        3 / 6,
        1,
    ]
    (known,) = lookahead_hits("own", np.array([0.0, 3, 2, 1]), trial, [0.25], bulk_size=3)
    # holds 1: hit, then 0 is kept: hit, then 2 is kept: hit
    assert known.hits == 3 / 6
    assert [one.rows for one in unions(trial, 4)] == [2, 3]


def test_lookahead_of_a_report_is_that_of_one_batch_after_the_other():
    work = workload()
    trial = needed_by(work, 2)
    scores = score("presc", GRAPH, SEEDS, work.sampler, 16)
    (hits,) = lookahead_hits("presc", scores, trial, [0.2], bulk_size=4)
    misses = lookahead_misses(trial.batches, scores, int(0.2 * GRAPH.num_nodes), 4)
    assert 1 - sum(map(len, misses)) / trial.num_rows == pytest.approx(hits.hits)


def of_features(recorder) -> int:
    """Bytes of rows and of requests for them; the ranks' agreement that none has failed is the same in every step."""
    phases = recorder.traffic.phases
    return sum(phases[name].bytes_received for name in ("features", "features requests") if name in phases)


@pytest.mark.parametrize(("p", "c"), [(4, 1), (8, 1)])
@pytest.mark.parametrize("budget", [0, 0.1])
def test_received_bytes_are_those_that_ranks_receive(p, c, budget):
    """Of the very batches that are gathered: equal to what the recorder counts, on every rank."""
    trial = needed_by(workload(), 1)
    batches = [trial.batches[rank::p] for rank in range(p)]
    steps = min(map(len, batches))
    x = np.random.default_rng(0).random((GRAPH.num_nodes, 8), np.float32)
    scores = score("presc", GRAPH, SEEDS, sp.GraphSAGE([4, 4]), 16)
    parts = np.random.default_rng(1).integers(0, p // c, GRAPH.num_nodes)
    cached = np.zeros(GRAPH.num_nodes, bool)
    cached[np.argsort(-scores, kind="stable")[: int(budget * GRAPH.num_nodes)]] = True

    def body(comm):
        recorder = Recorder(comm)
        features = PartitionedFeatures.of(x, sp.ProcessGrid(recorder, c), partition=parts)
        size = int(cached.sum()) * features.row_bytes + -(-GRAPH.num_nodes // 4) + 64
        source = CachedFeatures(features, size if budget else 0, np.where(cached, 1.0, 0.0))
        before = of_features(recorder)
        for batch in batches[comm.rank][:steps]:
            np.testing.assert_array_equal(source.gather(batch), x[batch])
        return (of_features(recorder) - before) / steps, source.cached_rows

    found = run_threads(p, body)
    missed = [static_misses(own[:steps], cached.astype(float), int(cached.sum())) for own in batches]
    forecast = received_bytes(parts, 32, missed)
    received = np.array([one for one, _ in found])
    assert all(rows >= cached.sum() for _, rows in found)
    if budget == 0:
        np.testing.assert_array_equal(forecast, received)
    np.testing.assert_allclose(forecast, received, rtol=0.02)


def test_pagraph_is_left_out_where_its_search_takes_too_long(monkeypatch):
    ring = sp.Graph(range(101), np.roll(np.arange(100), 1))
    assert entries_searched(workload(graph=ring, seeds=np.arange(100))) == 200
    monkeypatch.setattr("spsample.advice.MAX_SEARCHED", 199)
    result = CliRunner().invoke(app, ["cache-report", "rmat:8,8", "--seeds", "all", "--ranks", "2"])
    assert "pagraph is left out: the in-neighbourhoods" in result.output
    assert "pagraph, shuffled" not in result.output


def test_a_sampler_of_ones_own_is_reported_by_presc():
    class Own(Sampler):
        def layer(self, A, Q, draw, options):
            P = normalize_rows(Q @ A)
            return extract(its_sample(P, draw, edge_ids=options.edge_ids), options)

    report = report_of(workload(sampler=Own([3])), budgets=[0.1], ranks=1)
    assert {one.score for one in report.hits} == {"presc", "reverse-pagerank", "out-degree", "random", BEST}
    assert (report.copies, report.partitions, report.first_aggregation) == ([], [], None)
    assert advise(report)


def test_advice_fits_the_report():
    graph = sp.load_dataset("rmat:6,8").graph
    many = workload(graph=graph, seeds=np.arange(64), batch_size=32, sampler=sp.GraphSAGE([-1, -1]))
    assert "no cache of a part helps much" in advise(report_of(many, ranks=1))[0]
    assert advise(report_of(workload(), ranks=2))[0].startswith("Cache ")
    one_batch = report_of(workload(seeds=SEEDS[:4]), budgets=[0.1], ranks=4)
    assert not any("On 4 ranks" in sentence for sentence in advise(one_batch))


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"budgets": [0.0]}, InputError, "budgets"),
        ({"budgets": [float("nan")]}, InputError, "budgets"),
        ({"scores": ["best"]}, InputError, "scores"),
        ({"scores": ["replay"]}, InputError, "scores"),
        ({"budgets": []}, InputError, "budgets"),
        ({"ranks": 0}, InputError, "ranks"),
        ({"ranks": 10_000}, InputError, "ranks"),
        ({"alpha": 0}, InputError, "alpha"),
        ({"alpha": float("inf")}, InputError, "alpha"),
        ({"epochs": 0}, InputError, "epochs"),
        ({"workload": None}, DTypeError, "workload"),
    ],
)
def test_what_is_refused(change, error, named):
    arguments = {"workload": workload(), **change}
    with pytest.raises(error, match=named):
        report_of(arguments.pop("workload"), **arguments)


def test_the_command(tmp_path):
    runner = CliRunner()
    where = ["--output", str(tmp_path / "report.json")]
    command = ["cache-report", "rmat:9,8", "--batch-size", "32", "--bulk-size", "4", "--ranks", "2", *where]
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("-> ")
    assert result.output.rindex("->") < result.output.index("Rows hit")
    said = " ".join(result.output.split())
    for word in ("A row is the features of", "A row is hit where", "lookahead keeps", "from a peer", "Local batches"):
        assert word in said
    facts = json.loads((tmp_path / "report.json").read_text())
    assert facts["advice"]
    assert facts["ranks"] == 2
    as_json = runner.invoke(app, ["cache-report", "rmat:9,8", "--batch-size", "32", "--ranks", "1", "--json"])
    assert json.loads(as_json.output)["copies"] == []
    for wrong in (["--figure", "x.png"], ["--output", "/nowhere/x.json"], ["--alpha", "0"], ["--ranks", "0"]):
        assert runner.invoke(app, [*command[:-2], *wrong]).exit_code != 0
