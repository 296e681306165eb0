"""Loaders, training and `spsample train` over MPI and gloo, in processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import train_on_ranks
from jobs import BACKENDS, EITHER, run_ranks

from spsample.cli.ranks import RanksData
from spsample.comm import LocalCommunicator
from spsample.data import load_dataset, partition_vertices, planted, save_dataset, write_part_stores
from spsample.errors import DataError
from spsample.settings import RankOptions

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMMAND = ("-m", "spsample.cli.main", "train")
BOTH = ["case_batches", "case_one_rank_leaves", "case_gradient", "case_failure"]
CASES = {
    "mpi": [*BOTH, "case_local_batches", "case_algorithms", "case_cooperative", "case_factored"],
    "gloo": [*BOTH, "case_sync_is_overlap", "case_resumption", "case_resumption_at_every_step", "case_summary"],
}

pytestmark = pytest.mark.slow


def run(backend, ranks, *words):
    """What a job of Python programs printed, and its exit status."""
    done = run_ranks(backend, ranks, *words)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_loaders_and_training(backend):
    """Over gloo, whose calls take long, on 2 ranks: no kind of case is left out."""
    ranks = {"mpi": 4, "gloo": 2}[backend]
    status, output, errors = run(backend, ranks, HERE / "train_on_ranks.py", backend, *CASES[backend])
    assert status == 0, output + errors
    assert "8 cases passed" in output


def test_every_case_is_run():
    assert {name for name in dir(train_on_ranks) if name.startswith("case_")} == {*CASES["mpi"], *CASES["gloo"]}


@pytest.mark.parametrize("backend", EITHER)
def test_the_command(backend, tmp_path):
    """Trained on 3 ranks, gone on with on 2; rank 0 alone speaks."""
    out = tmp_path / "run"
    settings = ("planted:300,5", "--batch-size", "32", "--fanouts", "4,3", "--hidden", "16")
    status, output, errors = run(backend, 3, *COMMAND, *settings, "--epochs", "2", "--out", out, "--json")
    assert status == 0, errors
    told = json.loads(output)
    assert told["ranks"]["ranks"] == 3
    assert told["ranks"]["backend"] == backend
    assert {"features", "gradients"} <= set(told["ranks"]["traffic"])
    assert {"checkpoint.pt", "config.toml", "metrics.jsonl", "results.json"} <= {path.name for path in out.iterdir()}
    (out / "results.json").unlink()
    status, output, errors = run(backend, 2, *COMMAND, "--resume", out)
    assert status == 0, errors
    assert "2 ranks" in output
    assert json.loads((out / "results.json").read_text())["runs"][0]["history"] == told["runs"][0]["history"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_command_refuses_is_said_once(backend):
    status, _, errors = run(backend, 2, *COMMAND, "planted:300", "--replication", "3")
    assert status != 0
    assert errors.count("--replication: got 3 on 2 ranks") == 1
    assert "spsample: rank 0: error" in errors


@pytest.mark.parametrize("backend", EITHER)
def test_a_partition_changes_nothing_but_where_rows_are(backend, tmp_path):
    np.save(tmp_path / "parts.npy", np.random.default_rng(0).integers(0, 2, 300))
    settings = ("planted:300,5", "--batch-size", "32", "--fanouts", "4,3", "--hidden", "16", "--epochs", "2", "--json")
    runs = [[], ["--partition", tmp_path / "parts.npy"]]
    told = []
    for more in runs:
        status, output, errors = run(backend, 2, *COMMAND, *settings, *more)
        assert status == 0, errors
        told.append(json.loads(output))
    assert told[0]["runs"][0]["history"] == told[1]["runs"][0]["history"]
    assert told[0]["ranks"]["traffic"]["rows"] != told[1]["ranks"]["traffic"]["rows"]


@pytest.mark.parametrize("backend", EITHER)
def test_local_batches_of_a_partition(backend, tmp_path):
    """The same ones, whether the graph is partitioned or on each rank; resumed with other batches they are refused.

    A resumed run takes the partition from its folder.
    """
    np.save(tmp_path / "parts.npy", np.random.default_rng(0).integers(0, 2, 300))
    settings = ("planted:300,5", "--batch-size", "32", "--fanouts", "4,3", "--hidden", "16", "--epochs", "2", "--json")
    local = (*settings, "--partition", tmp_path / "parts.npy", "--batches", "local")
    histories = []
    for how in ("--partitioned", "--replicated"):
        status, output, errors = run(backend, 2, *COMMAND, *local, how, "--out", tmp_path / how)
        assert status == 0, errors
        histories.append(json.loads(output)["runs"][0]["history"])
    assert histories[0] == histories[1]
    replicated = tmp_path / "--replicated"
    np.save(tmp_path / "other.npy", np.arange(300) % 2)
    (replicated / "results.json").unlink()
    for option, value, said in (
        ("--batches", "shuffled", "--batches shuffled (there local)"),
        ("--partition", tmp_path / "other.npy", "state: got {'parts_sha256'"),
    ):
        status, _, errors = run(backend, 2, *COMMAND, "--resume", replicated, option, value)
        assert status != 0
        assert errors.count(said) == 1
    status, output, errors = run(backend, 2, *COMMAND, "--resume", replicated, "--epochs", "3", "--json")
    assert status == 0, errors
    assert json.loads(output)["runs"][0]["history"][:2] == histories[0]


@pytest.mark.parametrize("backend", EITHER)
def test_local_batches_that_cannot_be_are_refused_in_the_words_of_the_command(backend, tmp_path):
    np.save(tmp_path / "empty.npy", np.ones(300, int))
    said = {
        ("--batches", "nearby"): "--batches: got 'nearby'; expected one of 'shuffled', 'local'",
        ("--batches", "local", "--replicated"): "--batches: got local with --replicated; expected --partition too",
        ("--batches", "local", "--replicated", "--partition", "empty.npy"): "--partition: got no seeds in part 0 of 2",
    }
    for words, expected in said.items():
        paths = [tmp_path / word if word.endswith(".npy") else word for word in words]
        status, _, errors = run(backend, 2, *COMMAND, "planted:300", *paths)
        assert status != 0
        assert errors.count(expected) == 1, errors


@pytest.mark.parametrize("backend", EITHER)
def test_a_partition_that_does_not_fit(backend, tmp_path):
    np.save(tmp_path / "three.npy", np.arange(300) % 3)
    status, _, errors = run(backend, 2, *COMMAND, "planted:300", "--partition", tmp_path / "three.npy")
    assert status != 0
    told = "--partition: got parts from 0 to 2; expected one of 2 parts: 0 to 1 (on ranks: p/c block rows)"
    assert errors.count(told) == 1


@pytest.mark.parametrize("backend", EITHER)
def test_parts_of_ones_own(backend, tmp_path):
    """Each rank samples its own store; scaled features are those of all vertices; resumed from the folder alone."""
    data, folder = tmp_path / "data", tmp_path / "parts"
    save_dataset(planted(300, 5), data)
    whole = load_dataset(str(data))
    parts = partition_vertices(whole.graph, 2, "pagraph", seeds=whole.train_idx, hops=2)
    write_part_stores(whole, parts, 2, folder, hops=2)
    settings = (data, "--batch-size", "32", "--fanouts", "4,3", "--hidden", "16", "--scaling", "standard", "--json")
    on_parts, out = (*COMMAND, *settings, "--parts", folder, "--evaluation", "both"), tmp_path / "run"
    status, output, errors = run(backend, 2, *on_parts, "--epochs", "2", "--out", out)
    assert status == 0, errors
    told = json.loads(output)
    (out / "results.json").unlink()
    status, output, errors = run(backend, 2, *COMMAND, "--resume", out, "--epochs", "3", "--json")
    assert status == 0, errors
    assert json.loads(output)["runs"][0]["history"][:2] == told["runs"][0]["history"]
    status, _, errors = run(backend, 3, *on_parts)
    assert status != 0
    assert errors.count(f"--parts: got 2 parts in '{folder}'; expected as many as ranks: 3") == 1
    status, _, errors = run(backend, 2, *on_parts, "--rewire")
    assert status != 0
    assert errors.count("--parts: got it with --rewire") == 1


@pytest.mark.parametrize("backend", EITHER)
def test_copies_and_a_preference_for_them(backend, tmp_path):
    """Copies change no loss; a run that prefers them goes on from its folder alone."""
    settings = (*COMMAND, "planted:300,9", "--batch-size", "32", "--fanouts", "4,3", "--hidden", "16", "--replicated")
    copies, out = ("--cache-budget", "2KiB", "--copies", "best-copies", "--alpha", "0.3"), tmp_path / "run"
    histories = []
    for more in ((), copies, (*copies, "--biased", "1e6", "--out", out)):
        status, output, errors = run(backend, 2, *settings, "--epochs", "2", "--json", *more)
        assert status == 0, errors
        histories.append(json.loads(output)["runs"][0]["history"])
    assert histories[0] == histories[1] != histories[2]
    (out / "results.json").unlink()
    status, output, errors = run(backend, 2, *COMMAND, "--resume", out, "--epochs", "3")
    assert status == 0, errors
    assert "rows of features, at 0." in output
    assert json.loads((out / "results.json").read_text())["runs"][0]["history"][:2] == histories[2]


def test_files_that_are_no_partition(tmp_path):
    np.save(tmp_path / "words.npy", np.array(["a"]))
    np.savez(tmp_path / "two.npz", a=[1], b=[2])
    (tmp_path / "text.npy").write_text("0 1 0 1")
    said = {
        "none.npy": "No such file",
        "words.npy": "an array of <U1",
        "two.npz": "several arrays",
        "text.npy": "text.npy",
    }
    for name, words in said.items():
        data = RanksData(LocalCommunicator(), RankOptions(True, 1, "column", None, None, str(tmp_path / name)))
        with pytest.raises(DataError, match=f"--partition: got .*{words}"):
            data._parts()


@pytest.mark.parametrize(
    ("backend", "how"),
    [
        pytest.param("mpi", "a killed rank", marks=pytest.mark.needs("mpi")),
        pytest.param("gloo", "Ctrl-C", marks=pytest.mark.needs("gloo")),
    ],
)
def test_how_to_go_on_is_said(backend, how, tmp_path):
    """Whichever way a training on ranks ends early, its last line is the command that goes on."""
    out = tmp_path / "run"
    words = ("train", "planted:3000", "--epochs", "12", "--batch-size", "64", "--fanouts", "4,3", "--out", str(out))
    launch = [sys.executable, "-m", "spsample.cli.main", "launch", "-n", "2", "--backend", backend]
    with (tmp_path / "said").open("w+") as said:
        program = subprocess.Popen(
            [*launch, *words], stdout=said, stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        until = time.monotonic() + 120
        while not (out / "checkpoint.pt").is_file() and program.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        if how == "Ctrl-C":
            program.send_signal(signal.SIGINT)
        else:
            os.kill(a_rank(program.pid, str(out)), signal.SIGKILL)
        status = program.wait(120)
        said.seek(0)
        text = said.read()
    assert status == 130 if how == "Ctrl-C" else status not in (0, 2), text
    told = re.fullmatch(r"spsample: stopped after epoch (\d+); go on with `spsample (.*)`", text.splitlines()[-1])
    assert told, text
    assert shlex.split(told[2]) == ["launch", "-n", "2", "--backend", backend, "train", "--resume", str(out)]
    done = run_ranks(EITHER[0].values[0], 2, *COMMAND, "--resume", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"goes on at epoch {int(told[1]) + 1}, step 1 of 15" in done.stdout + done.stderr
    assert "\x1b" not in text + done.stdout + done.stderr


def a_rank(launcher, word):
    """The process of a rank: the last one started below the launcher with this word in its command."""
    parents, named = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            line = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if word in line and not {"launch", "torch.distributed.run", "mpirun"} & {Path(one).name for one in line}:
            named.append(int(folder.name))

    def is_below(process):
        while process > 1 and process != launcher:
            process = parents.get(process, 0)
        return process == launcher

    return max(filter(is_below, named))
