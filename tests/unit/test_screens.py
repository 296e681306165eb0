"""What the commands print keeps every number, at any width, and has no escape codes in files."""

from __future__ import annotations

import json
import re
import sys
from decimal import Decimal

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

from spsample.cli.main import app

PLAN = ("plan", "rmat:12,16", "--ranks", "8", "--fanouts", "15,10", "--batch-size", "64", "--network", "ethernet")
MEMORY = ("--memory-per-rank", "40MB", "--model-size", "2MB", "--replicate-hubs", "100KiB")
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
WIDTHS = ("60", "80")


def run(*arguments, columns="80"):
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": columns})
    assert result.exit_code == 0, result.output
    return result.stdout


def numbers(text):
    return set(re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?![\w])", text))


def shown(value, unit):
    """A number of bytes as a column of a unit has it."""
    size = value / UNITS[unit]
    if 0 < size < 0.01:
        return f"{Decimal(f'{size:.0e}'):f}"  # its first digit
    return f"{size:,.2f}"


def unit_of(text, column):
    """The unit that a header or a title names."""
    found = re.search(rf"{column}[^\n]*?\b(B|KiB|MiB|GiB)\b", text)
    assert found, text
    return found[1]


def whole(text, columns):
    """Nothing is cut off; on a screen that is narrower than 80 columns, lines may be longer than it."""
    assert "…" not in text
    assert "\x1b" not in text
    assert not [line for line in text.splitlines() if len(line) > max(int(columns), 80) and line.count("  ") > 2]


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_plan_for_ranks(columns, tmp_path):
    text = run(
        *PLAN, *MEMORY, "--output", str(tmp_path / "plan.json"), columns=columns
    )  # times are measured anew in each run
    facts = json.loads((tmp_path / "plan.json").read_text())
    whole(text, columns)
    said, unit = numbers(text), unit_of(text, "memory,")
    assert {grid["fits"] for grid in facts["grids"]} == {True, False}
    for grid in facts["grids"]:
        assert {shown(size, unit) for size in grid["memory"].values()} <= said
        if grid["fits"]:
            assert {f"{grid['bulk_size']:,}", f"{grid['largest_bulk_size']:,}"} <= said
            assert f"{1000 * grid['seconds']:,.2f}" in said
        for phase in grid["phases"].values():
            moved = unit_of(text, "received,")
            assert {shown(phase[way], moved) for way in ("received_max", "sent_max")} <= said
            assert f"{1000 * phase['seconds']:,.2f}" in said
            assert f"{phase['messages_max']:,.0f}" in said


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_plan_for_this_machine(columns):
    options = ("plan", "rmat:12,16", "--batch-size", "32", "--memory-budget", "2GiB")
    text, facts = run(*options, columns=columns), json.loads(run(*options, "--json"))
    whole(text, columns)
    unit = unit_of(text, "memory,")
    for count, peak in facts["predicted_peak"].items():
        assert re.search(rf"^\s*{int(count):,} +{re.escape(shown(peak, unit))}$", text, re.MULTILINE), text
    assert facts["loader_bulk_size"] < facts["largest_bulk_size"]
    assert "each of an eighth of an epoch at most" in " ".join(text.split())
    assert "an eighth" not in run(*options, "--prefetch", "0", columns=columns)


@pytest.mark.parametrize("columns", WIDTHS)
def test_info(columns):
    text, facts = (
        run("info", "planted:3000,20,7", columns=columns),
        json.loads(run("info", "planted:3000,20,7", "--json")),
    )
    whole(text, columns)
    assert "7 features per vertex" in text
    unit = unit_of(text, "size")
    sizes = [shown(facts["bytes"], unit), *(shown(array["bytes"], unit) for array in facts["arrays"])]
    at = [text.index(f" {size}") for size in sizes]
    assert at[0] == min(at)  # the total first


@pytest.mark.parametrize("columns", WIDTHS)
def test_traffic_and_seconds_of_ranks(columns, capsys, monkeypatch):
    pytest.importorskip("torch")
    from spsample.cli.report import print_ranks
    from spsample.training import RankSummary

    monkeypatch.setenv("COLUMNS", columns)
    phases = ("features", "activations requests", "gradients", "set-up", "totals")
    sizes = dict(zip(phases, (4.31e9, 9.9e8, 1.5e6, 44_300.0, 11.0), strict=True))
    traffic = {
        phase: {
            "bytes_sent": {"max": size, "mean": size / 2},
            "bytes_received": {"max": 0.75 * size, "mean": size / 2},
            "messages_sent": {"max": 1234567.0 + at, "mean": 1000000.0},
            "messages_received": {"max": 1.0, "mean": 1.0},
        }
        for at, (phase, size) in enumerate(sizes.items())
    }
    total = {"bytes_sent": {"max": 5.2e9, "mean": 2.6e9}, "bytes_received": {"max": 3.9e9, "mean": 2.6e9}}
    total["messages_sent"] = {"max": 6172845.0, "mean": 5e6}
    seconds = {name: {"max": 12345.67 + at, "mean": 2345.67 + at} for at, name in enumerate(("sampling", "waiting"))}
    print_ranks(RankSummary(4, "gloo", seconds, traffic, total))
    text = capsys.readouterr().out
    whole(text, columns)
    said = numbers(text)
    for name in ("bytes_sent", "bytes_received"):
        wanted = {shown(counts[name]["max"], "GiB") for counts in (total, *traffic.values())}
        assert wanted <= said, wanted - said
    assert {shown(counts["bytes_sent"]["mean"], "GiB") for counts in traffic.values()} <= said
    assert {f"{counts['messages_sent']['max']:,.0f}" for counts in traffic.values()} <= said
    assert {f"{one[which]:,.2f}" for one in seconds.values() for which in ("max", "mean")} <= said
    assert text.index("total") < text.index("gradients")


def test_results_of_a_training():
    pytest.importorskip("torch")
    options = ("train", "planted:400,5", "--epochs", "2", "--fanouts", "5", "--hidden", "8")
    text = run(*options, columns="60")
    whole(text, "60")
    assert re.search(r"test accuracy \d+\.\d\d %", text)
    seconds = text[text.index("time per phase") :]
    assert seconds.index("total") < seconds.index("sampling") < seconds.index("test accuracy")


def commands(tmp_path):
    yield "plan", "planted:300"
    yield "plan", "planted:300", "--ranks", "2"
    yield "info", "planted:300"
    yield ("doctor",)
    yield "sample", "planted:300", "-o", tmp_path / "bulks"
    yield "convert", "planted:300", tmp_path / "store"
    yield "partition", "planted:300", "--parts", "2", "--out", tmp_path / "parts.npy"
    yield "train", "planted:300", "--epochs", "1"


@pytest.mark.parametrize("command", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_help_is_prose(command):
    text = run(command, "--help")
    assert "`" not in text, "a paragraph was taken for a block of code, whose lines are left as they are"
    assert max(map(len, text.splitlines())) <= 80


def test_no_escape_codes_where_a_launcher_stands_in_for_a_terminal(tmp_path, monkeypatch):
    """Open MPI's mpirun gives each rank a terminal of its own, and its lines may go to a file."""
    pytest.importorskip("torch")
    pytest.importorskip("pymetis")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    for words in commands(tmp_path):
        if words[0] == "train":
            words += ("--backend-comm", "local")
        output = _on_a_terminal([sys.executable, "-m", "spsample.cli.main", *map(str, words)])
        assert output, words
        assert "\x1b" not in output, (words, output)
        assert "\r" not in output.replace("\r\n", "\n"), words  # the terminal's own line ends


def test_a_terminal_has_colours(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" in _on_a_terminal([sys.executable, "-m", "spsample.cli.main", "info", "planted:300"])


def _on_a_terminal(line):
    """What a program prints on a terminal."""
    import os
    import pty
    import subprocess

    main, end = pty.openpty()
    with subprocess.Popen(line, stdout=end, stderr=end, stdin=end) as program:
        os.close(end)
        output = b""
        while True:
            try:
                data = os.read(main, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            output += data
    os.close(main)
    assert program.returncode == 0 or "doctor" in line, output  # which may find a part of the machine broken
    return output.decode()


def test_sparse_features_are_counted(tmp_path):
    from spsample.data import Dataset, save_dataset
    from spsample.store import Graph

    empty = np.empty(0, np.int64)
    graph = Graph([0, 1, 2], [1, 0])
    x = sparse.csr_array(np.eye(2, 4005, dtype=np.float32))
    save_dataset(Dataset("words", graph, x, np.full(2, -1), empty, empty, empty, 0), tmp_path / "words")
    assert "4,005 features per vertex" in run("info", tmp_path / "words")
