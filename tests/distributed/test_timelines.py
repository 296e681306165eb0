"""Timelines of training, over threads, MPI and gloo."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import warm
from jobs import run_ranks

import spsample as sp
from spsample.comm import run_threads
from spsample.data import planted
from spsample.timeline import Timeline
from spsample.training import Callback, ModelConfig, TrainConfig, Trainer

DATA = planted(400)
SETTINGS = ("planted:400,5", "--batch-size", "32", "--fanouts", "4,3", "--hidden", "16")


def rows_of(path):
    """Spans by (rank, thread)."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = {(rank, name): [] for (rank, _), name in names.items()}
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], names[event["pid"], event["tid"]]].append(event)
    return rows


def counts_of(row):
    return Counter(event["name"] for event in row)


def trained(comm, pipeline, timeline=None, callbacks=()):
    config = TrainConfig(epochs=2, batch_size=32, pipeline=pipeline, evaluation="sampled")
    data = replace(DATA, graph=sp.ReplicatedGraph(DATA.graph, comm) if comm.size > 1 else DATA.graph)
    model = ModelConfig(hidden=8)
    trainer = Trainer(data, sp.GraphSAGE([4, 3]), model, config, list(callbacks), timeline=timeline)
    result = trainer.fit()
    steps = trainer.progress.step
    trainer.close()
    return result, steps


@pytest.mark.parametrize("pipeline", ["sync", "overlap", "cooperative"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_trainer_notes_every_step(pipeline, ranks, tmp_path):
    """Sums of spans are the seconds, each step has its parts, and the losses are those without a timeline."""

    def body(comm):
        plain, _ = trained(comm, pipeline)
        with Timeline(tmp_path / "t.json", comm) as timeline:
            result, steps = trained(comm, pipeline, timeline)
        assert result.history == plain.history
        return result.seconds, steps

    runs = run_threads(ranks, body)
    rows = rows_of(tmp_path / "t.json")
    threads = {"main"} if pipeline == "sync" else {"main", "sampling", "features"}
    assert rows.keys() == {(rank, thread) for rank in range(ranks) for thread in threads}
    for rank, (seconds, steps) in enumerate(runs):
        mine = [event for (other, _), row in rows.items() if other == rank for event in row]
        for phase, value in seconds.items():
            noted = sum(event["dur"] / 1e6 for event in mine if event["name"] == phase)
            assert noted == pytest.approx(value, abs=1e-5), phase
        counted = counts_of(rows[rank, "main"])
        assert counted["training"] == 2 * steps  # the batch of a rank, and what ranks do together
        for part in ("forward", "backward", "exchanging gradients", "optimisation"):
            assert counted[part] == steps
        assert counted["evaluation"] >= 2
        everything = counts_of(mine)
        assert everything["collate"] == steps
        assert bool(everything["sharing out"]) == (pipeline == "cooperative")
        assert counted["training waiting for ranks"] == (steps + 2 if ranks > 1 else 0)  # and at the end of an epoch
        assert bool(everything["sampling waiting for ranks"]) == (pipeline != "sync" and ranks > 1)


def test_a_training_that_fails_leaves_files(tmp_path):
    class Fails(Callback):
        def on_step(self, trainer, loss):
            if trainer.progress.step == 3:
                raise KeyError("step 3")

    def body(comm):
        with Timeline(tmp_path / "t.json", comm) as timeline:
            trained(comm, "overlap", timeline, [Fails()] if comm.rank == 1 else [])

    with pytest.raises(Exception, match="step 3"):
        run_threads(2, body)
    for rank, name in enumerate(["t.json", "t-rank-1.json"]):
        rows = rows_of(tmp_path / name)
        assert {other for other, _ in rows} == {rank}
        assert counts_of(rows[rank, "main"])["optimisation"] == 3


COMMAND = ("-m", "spsample.cli.main")


def run(*words):
    return warm.run(*COMMAND, *words)


@pytest.mark.slow
@pytest.mark.needs("gloo")
def test_the_command_on_ranks(tmp_path):
    """One file of two processes: a rank is in a step only while the other one is."""
    trace = tmp_path / "t.json"
    done = run_ranks("gloo", 2, *COMMAND, "train", *SETTINGS, "--epochs", 2, "--trace", trace)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"timeline: {trace}" in done.stderr
    assert "waiting per stage" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
    rows = rows_of(trace)
    assert rows.keys() == {(rank, thread) for rank in range(2) for thread in ("main", "sampling", "features")}
    error = json.loads(trace.read_text())["otherData"]["clock error, us"]
    ends = [[e["ts"] + e["dur"] for e in rows[r, "main"] if e["name"] == "exchanging gradients"] for r in range(2)]
    begins = [[e["ts"] for e in rows[r, "main"] if e["name"] == "exchanging gradients"] for r in range(2)]
    for mine in range(2):  # nobody has the sum before the other one has given its part
        assert len(ends[mine]) == 2 * 4
        assert (np.array(ends[mine]) - np.array(begins[1 - mine])).min() >= -2 * error


@pytest.mark.slow
def test_resume_with_and_without_a_trace(tmp_path):
    """The file is that of one command: a resumed run does not write over it unless told."""
    out, first, second = tmp_path / "run", tmp_path / "first.json", tmp_path / "second.json"
    assert run("train", *SETTINGS, "--epochs", 2, "--out", out, "--trace", first).returncode == 0
    before = first.read_bytes()
    assert counts_of(rows_of(first)[0, "main"])["forward"] == 2 * 8
    done = run("train", "--resume", out, "--epochs", 3)
    assert done.returncode == 0, done.stderr
    assert first.read_bytes() == before
    done = run("train", "--resume", out, "--epochs", 5, "--trace", second, "--json")
    assert done.returncode == 0, done.stderr
    assert counts_of(rows_of(second)[0, "main"])["forward"] == 2 * 8
    seconds = json.loads(done.stdout)["runs"][0]["seconds"]
    noted = sum(e["dur"] / 1e6 for row in rows_of(second).values() for e in row if e["name"] == "training")
    assert seconds["training"] > noted > 0  # with those of the runs before


@pytest.mark.slow
def test_traces_that_cannot_be_written_are_refused_before_anything(tmp_path):
    for ranks in (1, 2):
        done = run_ranks(
            "gloo",
            ranks,
            *COMMAND,
            "train",
            *SETTINGS,
            "--out",
            tmp_path / "run",
            "--trace",
            tmp_path / "none" / "t.json",
        )
        assert done.returncode != 0
        assert done.stderr.count("--trace: got ") == 1, done.stderr
        assert "expected a file in a folder that exists" in done.stderr
        assert not (tmp_path / "run").exists()
    done = run("train", *SETTINGS, "--trace", tmp_path / "t.txt")
    assert done.returncode == 2
    assert "--trace: got" in done.stderr
    assert "ends in .json" in done.stderr


@pytest.mark.slow
def test_a_diverging_run_leaves_a_trace_and_a_killed_one_none(tmp_path):
    trace = tmp_path / "t.json"
    done = run("train", *SETTINGS, "--lr", "1e30", "--optimizer", "sgd", "--trace", trace)
    assert done.returncode == 2, done.stdout
    assert "--lr" in done.stderr
    assert counts_of(rows_of(trace)[0, "main"])["forward"] >= 1
    trace.unlink()
    long = ("planted:3000", "--epochs", "10000", "--eval-every", "10000", "--out", tmp_path / "run")
    program = subprocess.Popen(
        list(map(str, [sys.executable, *COMMAND, "train", *long, "--trace", trace])),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    until = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoint.pt").is_file() and time.monotonic() < until:
        time.sleep(0.05)
    program.send_signal(signal.SIGKILL)
    program.communicate(timeout=60)
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
