"""Kill a training run at random moments (SIGKILL) and resume it: its losses must be those of a run left alone.

    OMP_NUM_THREADS=1 python tests/by_hand/kill_and_resume.py --kills 20      # some three minutes per case

Compared bit for bit are the loss of every step, as ``metrics.jsonl`` has them, and the results. The moments are steps
drawn at random and up to 30 ms more, so that some fall between two batches of one bulk and some into the writing of a
checkpoint. The exit status is 1 where losses differ. docs/training.md has the figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

COMMAND = [sys.executable, "-m", "spsample.cli.main", "train"]
POLL_SECONDS = 0.001
EXTRA_SECONDS = 0.03
START_SECONDS = 300


@dataclass(frozen=True)
class Case:
    """One run: its data set, and what of the options matters here."""

    dataset: str = "planted:6000,8"
    options: tuple[str, ...] = ()
    epochs: int = 20
    batch_size: int = 128
    bulk_size: int = 8
    checkpoint_batches: int = 3

    @property
    def batches(self):
        """Per epoch: 60 of 100 vertices of a planted graph are trained on."""
        nodes = int(self.dataset.removeprefix("planted:").split(",")[0])
        return -(-round(0.6 * nodes) // self.batch_size)

    def arguments(self, folder):
        numbers = {
            "epochs": self.epochs,
            "batch-size": self.batch_size,
            "bulk-size": self.bulk_size,
            "checkpoint-batches": self.checkpoint_batches,
            "log-every": 1,
            "eval-every": 5,
        }
        flags = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
        fixed = ["--dropout", "0.4", "--out", str(folder), "--json"]
        return [self.dataset, *flags, *fixed, *self.options]


CASES = {
    "graphsage": Case(),
    "ladies": Case(options=("--sampler", "ladies", "--layer-sizes", "512,512")),
    "gat": Case(
        options=("--model", "gat", "--residual", "--layer-norm", "--schedule", "cosine", "--warmup-epochs", "3"),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What came of one chain of kills."""

    case: str
    kills: int
    inside_a_bulk: int
    at: list[int]
    steps: int
    equal: bool
    seconds: float


def losses(folder):
    """Step, epoch and loss of every line of steps."""
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [(r["step"], r["epoch"], r["loss"]) for r in records if r["kind"] == "steps"]


def scores(folder):
    """Result and history, without times."""
    runs = json.loads((folder / "results.json").read_text("utf-8"))["runs"]
    return [(run["val"], run["test"], run["history"]) for run in runs]


def finish(arguments):
    """Run a command to its end."""
    subprocess.run([*COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL)


def kill_at(arguments, folder, step, extra):
    """Start a command, kill it once that step is in the journal; return the last step that is."""
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    try:
        while len(losses(folder)) < step and process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        time.sleep(extra)
    finally:
        process.kill()
        process.wait()
    return len(losses(folder))


def run_case(name, case, kills, random_seed):
    """Train once without and once with interruptions, and compare."""
    start = time.monotonic()
    rng = np.random.Generator(np.random.Philox(random_seed))
    total = case.epochs * case.batches
    steps = np.sort(rng.choice(np.arange(1, total - 10), size=kills, replace=False)).tolist()
    with TemporaryDirectory() as scratch:
        alone, killed = Path(scratch) / "alone", Path(scratch) / "killed"
        finish(case.arguments(alone))
        at = []
        for step in steps:
            resume = ["--resume", str(killed), "--json"]
            arguments = resume if killed.exists() else case.arguments(killed)
            at.append(kill_at(arguments, killed, step, float(rng.uniform(0, EXTRA_SECONDS))))
        finish(["--resume", str(killed), "--json"])
        equal = losses(alone) == losses(killed) and len(losses(alone)) == total and scores(alone) == scores(killed)
    inside = sum(1 for step in at if step % case.batches % case.bulk_size)
    return Outcome(name, kills, inside, at, total, equal, round(time.monotonic() - start, 1))


def main(
    kills: Annotated[int, typer.Option(help="Of each case.")] = 20,
    case: Annotated[list[str], typer.Option(help="Cases.")] = list(CASES),  # noqa: B006
    random_seed: Annotated[int, typer.Option(help="Decides the moments.")] = 0,
) -> None:
    """Print one JSON line per case; exit with 1 where losses differ."""
    outcomes = []
    for name in case:
        outcomes.append(run_case(name, CASES[name], kills, random_seed))
        print(json.dumps({**vars(outcomes[-1]), "threads": os.environ.get("OMP_NUM_THREADS", "all")}), flush=True)
    if not all(outcome.equal for outcome in outcomes):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
