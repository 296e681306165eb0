"""What the benchmarks make of what they measured: lines counted, medians and ratios, JSON lines, table and plot."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bulk_size import WORKLOADS, Cost, _point
from bulk_size import table as bulk_size_table
from lines import Lines, indices_lines, indptr_lines
from machine_facts import beyond_caches, cache_sizes, machine_facts
from report import Result, Turn, peak_over_output, plot, ratios, summary, table, write_lines
from run import app

GRAPH_ROW = np.array([0, 3])
"""The ends of one row that drew three entries."""


def turn(seconds: float, batches: int = 1, **figures: float) -> Turn:
    return Turn(seconds, seconds, {"batches": batches, **figures})


def result(side: str, baseline: str = "theirs", over: float | None = 0.5, peer: str = "spsample") -> Result:
    fields = {"rounds": 1, "batches": 2, "seconds_per_batch": 0.1, "fastest": 0.1, "slowest": 0.2}
    ratio = {"over_baseline": over, "least_over_baseline": over, "most_over_baseline": over}
    return Result(
        "g",
        "case",
        side,
        peer,
        "1.0",
        **fields,
        **ratio,
        cpu_seconds_per_batch=0.1,
        baseline=baseline,
        figures={"edges": 7.0},
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([0], Lines(1, 1)),
        ([7], Lines(2, 2)),  # its end is the first word of the next line
        ([0, 6], Lines(2, 1)),  # one line, asked for twice
        ([7, 8], Lines(3, 2)),
        ([], Lines(0, 0)),
    ],
)
def test_lines_of_row_ends(rows: list[int], expected: Lines) -> None:
    assert indptr_lines(np.array(rows, np.int32)) == expected


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ([0, 15, 1], Lines(1, 1)),
        ([15, 16, 40], Lines(3, 3)),
        ([40, 16, 17], Lines(2, 2)),
    ],
)
def test_lines_of_drawn_positions(positions: list[int], expected: Lines) -> None:
    assert indices_lines(GRAPH_ROW, np.array(positions), itemsize=4) == expected


def test_rows_that_share_a_line_count_it_once_per_layer() -> None:
    assert indices_lines(np.array([0, 2, 2, 3]), np.array([1, 2, 3]), itemsize=4) == Lines(2, 1)


def test_nothing_drawn_touches_nothing() -> None:
    assert indices_lines(np.array([0, 0]), np.zeros(0, np.int64), itemsize=4) == Lines()


def test_int64_indices_fill_more_lines() -> None:
    assert indices_lines(GRAPH_ROW, np.array([0, 7, 8]), itemsize=8) == Lines(2, 2)


def test_ratios_are_of_time_per_batch_round_by_round() -> None:
    ours = [turn(2.0, batches=4), turn(6.0, batches=4)]
    theirs = [turn(1.0), turn(2.0)]
    assert ratios(ours, theirs) == [0.5, 0.75]


def test_summary_has_medians_and_extremes() -> None:
    ours = [turn(t, batches=2, edges=10.0) for t in (2.0, 8.0, 4.0)]
    made = summary(ours, [turn(1.0), turn(1.0), turn(1.0)])
    assert (made["seconds_per_batch"], made["fastest"], made["slowest"]) == (2.0, 1.0, 4.0)
    assert (made["over_baseline"], made["least_over_baseline"], made["most_over_baseline"]) == (2.0, 1.0, 4.0)
    assert made["figures"] == {"edges": 5.0}
    assert (made["rounds"], made["batches"]) == (3, 2)


def test_summary_without_the_baseline_has_no_ratio() -> None:
    assert summary([turn(1.0)], None)["over_baseline"] is None


def test_json_lines(tmp_path) -> None:
    path = tmp_path / "out.jsonl"
    write_lines(path, {"cores": 2}, [result("ours")], ["DGL: missing"])
    machine, missing, one = map(json.loads, path.read_text().splitlines())
    assert machine == {"kind": "machine", "cores": 2}
    assert missing == {"kind": "missing", "what": "DGL: missing"}
    assert (one["kind"], one["side"], one["over_baseline"]) == ("result", "ours", 0.5)


def test_table_and_plot_of_sides_with_and_without_a_ratio(tmp_path) -> None:
    results = [
        result("ours"),
        result("theirs", over=1.0, peer="DGL"),
        result("limit", over=0.3, peer="memory"),
        result("alone", over=None),
    ]
    memory = replace(result("memory", over=1.0), case="peak", figures={"peak_bytes": 23.0, "output_bytes": 20.0})
    assert peak_over_output(memory) == pytest.approx(1.15)
    assert peak_over_output(results[0]) is None
    results.append(memory)
    made = table(results)
    assert made.row_count == 5
    assert all(column.header for column in made.columns)
    pytest.importorskip("matplotlib")
    plot(results, "title", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0


def test_points_of_bulk_sizes_are_medians_over_rounds() -> None:
    rounds = [{1: Cost(2.0, 3.0, 10.0), 4: Cost(t, 1.0, 10.0)} for t in (1.0, 0.5, 3.0)]
    points = [_point("g", WORKLOADS["sage"], k, rounds) for k in (1, 4)]
    assert (points[1].seconds_per_batch, points[1].fastest, points[1].slowest) == (1.0, 0.5, 3.0)
    assert (points[1].over_one, points[1].least_over_one, points[1].most_over_one) == (0.5, 0.25, 1.5)
    assert (points[0].over_one, points[0].cpu_over_one) == (1.0, 1.0)
    assert points[1].edges_per_second == 10.0
    made = bulk_size_table(points)
    assert made.row_count == 2
    assert all(column.header for column in made.columns)


def test_cache_sizes(tmp_path) -> None:
    for number, (kind, level, size) in enumerate([("Data", 1, "32K"), ("Instruction", 1, "32K"), ("Unified", 3, "1M")]):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, value in {"type": kind, "level": level, "size": size}.items():
            (folder / name).write_text(f"{value}\n")
    assert cache_sizes(tmp_path) == {"L1": 32 << 10, "L3": 1 << 20}
    assert cache_sizes(tmp_path / "missing") == {}


def test_the_buffer_is_no_smaller_than_the_graph_and_bounded() -> None:
    assert beyond_caches(3 << 30) >= 3 << 30
    assert beyond_caches(1 << 40) == 4 << 30


def test_machine_facts_are_json() -> None:
    facts = machine_facts(threads=2)
    assert facts["threads"] == 2
    assert json.loads(json.dumps(facts)) == facts


SMALL = ["--batch-size", "8", "--replication", "1", "--variant", "column", "--no-model"]


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("bulk-size", ["--graph", "rmat:8,8", "--workload", "ladies-small", "--batches", "2", "--budget", "0.01"]),
        ("sampling", ["--graph", "rmat:8,8", "--case", "small-call", "--batches", "2", "--batch-size", "8"]),
        ("traffic", ["--graph", "rmat:8,8", "--sampler", "GraphSAGE", "--k", "4", "--ranks", "2", *SMALL]),
    ],
)
@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_the_table_is_printed(tmp_path: Path, command: str, options: list[str]) -> None:
    rounds = [] if command == "traffic" else ["--rounds", "1"]
    done = CliRunner().invoke(app, [command, *options, *rounds, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.exception
    assert "┃" in done.stdout
    assert "no plot without matplotlib" in done.output
    assert list(tmp_path.glob("*.jsonl"))
    assert not list(tmp_path.glob("*.png"))
