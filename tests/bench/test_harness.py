"""The harness itself: results that go on, sides that crash, comparisons, pages."""

from __future__ import annotations

import json
import sys
from importlib import import_module

import numpy as np
import pytest

from spsample.comm import LocalCommunicator, run_threads
from spsample.errors import DataError, InputError
from spsample.sparse import get_num_threads, set_num_threads

pytest.importorskip("pandas")
pytest.importorskip("plotly")

from click.testing import CliRunner

from spsample.bench.case import Case, Peer, Side, declared
from spsample.bench.command import _print_and_write as print_and_write
from spsample.bench.command import _require_same as require_same
from spsample.bench.command import bench
from spsample.bench.compare import differences
from spsample.bench.inputs import Inputs
from spsample.bench.process import FailedError, MissingError, SideProcess
from spsample.bench.ranks import measure_on_ranks, together
from spsample.bench.records import Results, read_lines
from spsample.bench.report import write_report
from spsample.bench.rows import table_of as table_of_rows
from spsample.bench.run import run_case
from spsample.bench.tables import missing_in, table_of
from spsample.bench.turns import Settings, cells_of

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


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return sampled(tmp_path_factory.mktemp("results"))


def test_sides_are_the_same_batches(results):
    table = table_of([results])
    ours = table[table["peer"] == "spsample"]
    assert len(ours) == 4
    assert ours["edges"].nunique() == 1  # whatever k and the form of the result
    assert set(table["line"]) == {"out/sampling.jsonl:2", "out/sampling.jsonl:3"}
    assert table.loc[table["is_limit"], "lines"].gt(0).all()


@pytest.mark.parametrize("name", ["case", "commit", "processor", "instruction_set"])
def test_results_of_something_else_are_refused(tmp_path, name):
    Results(tmp_path / "sampling.jsonl", FACTS)
    before = (tmp_path / "sampling.jsonl").read_bytes()
    with pytest.raises(InputError, match=f"{name} '{FACTS[name]}'"):
        Results(tmp_path / "sampling.jsonl", {**FACTS, name: "other"})
    assert (tmp_path / "sampling.jsonl").read_bytes() == before


@pytest.mark.parametrize("text", [b"my notes, in one line", b'{"mine": 1}\n{"half', b'{"kind"; "x"'])
def test_files_of_others_are_left_as_they_are(tmp_path, text):
    path = tmp_path / "sampling.jsonl"
    path.write_bytes(text)
    with pytest.raises(DataError):
        Results(path, FACTS)
    assert path.read_bytes() == text


def test_a_header_that_was_cut_is_written_anew(tmp_path):
    path = tmp_path / "sampling.jsonl"
    path.write_bytes(b'{"kind": "mach')
    Results(path, FACTS).close()
    assert len(read_lines(path)) == 1


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
        {**ours, "seconds": [seconds * noise() for _ in range(15)], "figures": {"messages": [messages] * 15}},
        {**ours, "side": "DGL DataLoader", "peer": peer, "seconds": [1.0 * noise() for _ in range(15)], "figures": {}},
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
        "figures": {"sent_bytes": 4, "x_ms": 1.0, "hits": 1.0, "batches": 3.0},
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


def test_the_page_needs_no_network_and_names_its_lines(results, tmp_path):
    write_report([results], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "out/sampling.jsonl:2" in page
    assert 'id="out/sampling.jsonl:2"' in page
    assert "<script src=" not in page
    assert "https://cdn" not in page.split("</script>", 1)[1]


def test_missing_peers_are_named(tmp_path):
    side = {"side": "DGL", "peer": "DGL", "is_limit": False, "threads": 1, "missing": "no module"}
    path = written(tmp_path / "a.jsonl", [HEADER, {"kind": "cell", "cell": {}, "sides": [side]}])
    assert missing_in([path]) == ["DGL: missing (no module)"]
    assert isinstance(declared("peers", "dgl"), Peer)


def test_compare_knows_baselines_failures_hits_and_rounds(tmp_path):
    whole = lines_of(0.5)
    before = written(tmp_path / "a.jsonl", whole)
    alone = written(tmp_path / "b.jsonl", [whole[0], {**whole[1], "sides": whole[1]["sides"][:1]}])
    assert differences(before, alone) == []  # not ratios beside seconds
    ours = {"side": "spsample, CSR", "peer": "spsample", "is_limit": False, "threads": 1}
    failed = written(tmp_path / "c.jsonl", [whole[0], {**whole[1], "sides": [{**ours, "failed": "it crashed"}]}])
    assert [(one.figure, one.is_worse) for one in differences(before, failed)] == [("failures", True)]
    for number, (figures, expected) in enumerate([({"hits": [0.5, 0.6]}, []), ({"hits": [0.4, 0.6]}, [True])]):
        sides = [{**ours, "seconds": [1.0] * 2, "cpu_seconds": [1.0] * 2, "figures": {"hits": [0.5]}}]
        one = written(tmp_path / f"d{number}.jsonl", [HEADER, {"kind": "cell", "cell": {}, "sides": sides}])
        sides = [{**sides[0], "figures": figures}]
        two = written(tmp_path / f"e{number}.jsonl", [HEADER, {"kind": "cell", "cell": {}, "sides": sides}])
        assert [found.is_worse for found in differences(one, two)] == expected


def test_compare_refuses_what_has_nothing_in_common(tmp_path):
    before, other = lines_of(0.5), lines_of(5.0)
    other[1]["cell"] = {"graph": "h"}
    with pytest.raises(InputError, match="no cell and side"):
        differences(written(tmp_path / "a.jsonl", before), written(tmp_path / "b.jsonl", other))


@pytest.mark.parametrize("line", [{"kind": "machine"}, {"kind": "cell", "cell": {}, "sides": []}, [1]])
def test_a_file_begins_with_a_machine(tmp_path, line):
    with pytest.raises(DataError, match="line 1"):
        read_lines(written(tmp_path / "x.jsonl", [line]))


def test_values_given_twice_are_one_cell():
    assert list(cells_of({"a": (1, 1, 2), "b": ("x",)})) == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]


def test_a_rank_without_the_graph_is_said_by_all(tmp_path, monkeypatch):
    monkeypatch.setattr("spsample.bench.run.store_of", lambda spec, cache: tmp_path / "nowhere")
    given = {**declared("cases", "scaling").parameters, **TINY}
    refused = []

    def body(comm):
        with pytest.raises(DataError, match="a store that all ranks see"):
            run_case("scaling", given, tmp_path, tmp_path / "out", Settings(1), comm)
        refused.append(comm.rank)

    run_threads(2, body)
    assert sorted(refused) == [0, 1]


def test_ranks_with_other_arguments_are_refused():
    def body(comm):
        with pytest.raises(InputError, match="other arguments on rank 1"):
            require_same(comm, f"rounds={comm.rank}")

    run_threads(2, body)


def threads_now(inputs):
    return lambda: {"used": get_num_threads()}


def test_ranks_have_the_threads_of_the_cell(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = get_num_threads()
    case = Case("", "", {}, (Side("x", threads_now),), ranks=True)

    def used(threads):
        lines = run_threads(2, lambda comm: measure_on_ranks(case, {"threads": threads}, tmp_path, comm, Settings(1)))
        return lines[0]["sides"][0]["figures"]["used"]

    try:
        assert [used(threads) for threads in (1, 2)] == [[1.0], [2.0]]
    finally:
        set_num_threads(before)


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--side", "spsmple"], "Did you mean 'spsample"), (["--bulk-size", "-1"], "none below 0")],
)
def test_what_would_measure_nothing_is_refused(words, expected, tmp_path):
    done = CliRunner().invoke(bench, ["sampling", "--quick", "--out", str(tmp_path / "out"), *words])
    assert done.exit_code
    assert expected in done.output + str(done.exception)
    assert not (tmp_path / "out").exists()


def test_a_count_that_fails_is_rows(tmp_path):
    table = table_of([sampled(tmp_path, fanouts=("x",), bulk_size=(1,))])
    assert len(table) == 3
    assert table["problem"].ne("").all()


def test_names_are_text_on_the_page(tmp_path):
    folder = tmp_path / "<b>[red"
    folder.mkdir()
    lines = lines_of(0.5)
    lines[1]["cell"] = {"graph": "<i>", "bulk_size": 1}
    lines[1]["sides"][0]["figures"]["<u>"] = [1.0] * 7
    lines[1]["sides"].append({"side": "x", "peer": "x", "is_limit": False, "threads": 1, "failed": "at [/usr/lib]"})
    path = written(folder / "<s>.jsonl", lines)
    write_report([path], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text().split("</script>", 1)[1]
    assert [word for word in ("<b>", "<s>", "<u>") if word in page.split("<h2>")[-1] + page.split("<table")[1]] == []
    print_and_write([path], tmp_path)


def test_the_limit_of_gathering_reads_the_rows_of_the_table():
    features = import_module("spsample.bench.cases.features")
    values = {"table_mib": 1, "row_bytes": 512, "call_mib": 1, "batches": 2, "dtype": "float32"}
    inputs = Inputs(None, values)
    assert features.count(inputs)()["known_rows"] == len(table_of_rows(inputs)) == 2048
