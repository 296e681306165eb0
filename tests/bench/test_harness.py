"""The harness itself: results that go on, sides that crash, comparisons, pages."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from spsample.comm import LocalCommunicator, run_threads
from spsample.errors import DataError, InputError

pytest.importorskip("pandas")
pytest.importorskip("plotly")

from click.testing import CliRunner
from spsample.bench.case import Peer, Side, declared
from spsample.bench.command import bench
from spsample.bench.compare import differences
from spsample.bench.process import FailedError, MissingError, SideProcess
from spsample.bench.ranks import together
from spsample.bench.records import Results, read_lines
from spsample.bench.report import write_report
from spsample.bench.run import run_case
from spsample.bench.tables import missing_in, table_of
from spsample.bench.turns import Settings

TINY = {"graph": ("rmat:8,8",), "batches": (2,), "batch_size": (8,), "bulk_size": (1, 2), "fanouts": ("2,2",)}
FACTS = {"case": "sampling", "commit": "a", "version": "1", "processor": "p", "instruction_set": "avx2", "caches": {}}
HEADER = {"kind": "machine", **FACTS, "cores": 2, "system": "s"}


def sampled(tmp_path, **given):
    parameters = {**declared("cases", "sampling").parameters, **TINY, "threads": (1,), **given}
    settings = Settings(1, sides=("spsample", "limit"))
    return run_case("sampling", parameters, tmp_path / "graphs", tmp_path / "out", settings, LocalCommunicator())


def test_a_killed_run_goes_on(tmp_path):
    path = sampled(tmp_path, bulk_size=(1,))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "cell", "cel')
    assert sampled(tmp_path) == path
    cells = [line["cell"]["bulk_size"] for _, _, line in read_lines(path) if line["kind"] == "cell"]
    assert cells == [1, 2]
    assert path.read_bytes().startswith(whole)


def test_sides_are_the_same_batches(tmp_path):
    table = table_of([sampled(tmp_path)])
    ours = table[table["peer"] == "spsample"]
    assert len(ours) == 4
    assert ours["edges"].nunique() == 1  # whatever k and the form of the result
    assert set(table["line"]) == {"sampling.jsonl:2", "sampling.jsonl:3"}
    assert table.loc[table["is_limit"], "lines"].gt(0).all()


@pytest.mark.parametrize("name", ["case", "commit", "processor", "instruction_set"])
def test_results_of_something_else_are_refused(tmp_path, name):
    Results(tmp_path / "sampling.jsonl", FACTS)
    before = (tmp_path / "sampling.jsonl").read_bytes()
    with pytest.raises(InputError, match=f"{name} '{FACTS[name]}'"):
        Results(tmp_path / "sampling.jsonl", {**FACTS, name: "other"})
    assert (tmp_path / "sampling.jsonl").read_bytes() == before


def test_what_is_no_result_is_refused(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("not json\n")
    with pytest.raises(DataError, match="line 1"):
        read_lines(path)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["samplign"], "'sampling'"),
        (["sampling", "--bulksize", "1"], "--bulk-size"),
        (["sampling", "--bulk-size", "one"], "no list of numbers"),
        (["sampling", "--python", "dlg=x"], "'dgl'"),
        (["paper", "tripaty"], "'tripathy'"),
        (["report", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_unknown_names_are_named_with_the_nearest(words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(bench, words)
    assert done.exit_code
    assert expected in done.output + str(done.exception)
    assert not list(tmp_path.iterdir())


def crash(inputs):
    raise NotImplementedError


def test_a_side_that_crashes_or_is_missing_is_said():
    with pytest.raises(MissingError, match="no_such_package"):
        SideProcess(sys.executable, ("no_such_package",), {})
    with SideProcess(sys.executable, ("numpy",), {}) as process:
        side = Side("x", declared("cases", "sampling").sides[0].task)
        with pytest.raises(FailedError, match="KeyError: 'fanouts'"):
            process.prepare(side, __import__("pathlib").Path("/nowhere"), {"batches": 1, "batch_size": 1})


def lines_of(seconds, messages=7, peer="SciPy", rng=None):
    """Lines of a run: ours of some seconds with noise, and a peer."""
    noise = (lambda: 1.0) if rng is None else (lambda: float(np.exp(0.02 * rng.standard_normal())))
    ours = {"side": "spsample, CSR", "peer": "spsample", "is_limit": False, "threads": 1}
    sides = [
        {**ours, "seconds": [seconds * noise() for _ in range(7)], "figures": {"messages": [messages] * 7}},
        {**ours, "side": "DGL DataLoader", "peer": peer, "seconds": [1.0 * noise() for _ in range(7)], "figures": {}},
    ]
    sides = [{**side, "cpu_seconds": side["seconds"]} for side in sides]
    return [HEADER, {"kind": "cell", "cell": {"graph": "g"}, "sides": sides}]


def written(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_compare_finds_a_slowdown_and_an_extra_message(tmp_path):
    rng = np.random.default_rng(0)
    before = written(tmp_path / "a.jsonl", lines_of(0.5, rng=rng))
    after = written(tmp_path / "b.jsonl", lines_of(0.55, 8, rng=rng))
    found = {one.figure: one for one in differences(before, after)}
    assert set(found) == {"time", "messages"}
    assert all(one.is_worse for one in found.values())
    done = CliRunner().invoke(bench, ["compare", str(before), str(after)])
    assert done.exit_code == 1
    assert "messages 7 -> 8" in done.output
    better = differences(after, before)
    assert len(better) == 2
    assert not any(one.is_worse for one in better)


def test_compare_is_silent_where_runs_are_equal(tmp_path):
    rng, alarms = np.random.default_rng(1), 0
    for number in range(40):
        pair = [written(tmp_path / f"{number}{name}.jsonl", lines_of(0.5, rng=rng)) for name in "ab"]
        alarms += bool(differences(*pair))
    assert alarms <= 4


def test_ranks_are_put_together():
    def turn(rank):
        return {
            "seconds": rank,
            "cpu_seconds": 1,
            "figures": {"sent_bytes": 2, "x_ms": rank, "hits": rank, "batches": 3},
        }

    assert together([turn(0), turn(2)]) == {
        "seconds": 2,
        "cpu_seconds": 2,
        "figures": {"sent_bytes": 4, "x_ms": 2, "hits": 1.0, "batches": 3.0},
    }


def test_ranks_take_turns_and_fail_together(tmp_path):
    case = declared("cases", "scaling")
    given = {**case.parameters, **TINY, "bulk_size": (1,), "algorithm": ("column", "neither")}

    def body(comm):
        return run_case("scaling", given, tmp_path / "graphs", tmp_path / "out", Settings(1), comm)

    paths = run_threads(2, body)
    assert paths[0] == paths[1]
    table = table_of([paths[0]])
    assert list(table["problem"] != "") == [False, False, True]
    assert "algorithm" in table["problem"].iloc[-1]
    assert table["messages"].iloc[1] > 0


def test_the_page_needs_no_network_and_names_its_lines(tmp_path):
    path = sampled(tmp_path)
    write_report([path], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "sampling.jsonl:2" in page
    assert "id='sampling.jsonl:2'" in page
    assert "<script src=" not in page
    assert "https://cdn" not in page.split("</script>", 1)[1]


def test_missing_peers_are_named(tmp_path):
    side = {"side": "DGL", "peer": "DGL", "is_limit": False, "threads": 1, "missing": "no module"}
    path = written(tmp_path / "a.jsonl", [HEADER, {"kind": "cell", "cell": {}, "sides": [side]}])
    assert missing_in([path]) == ["DGL: missing (no module)"]
    assert isinstance(declared("peers", "dgl"), Peer)
