"""The two training scripts of `examples/`, PyG's loader and spsample's, run in turn: accuracy and time of an epoch.

    python bench/train_scripts.py planted:20000 --runs 6 --workers 0 --workers 2

A line of JSON for each run, then a table. Each run is a process of its own; the scripts take turns run after run with
the same random seed, and the ratio is of each turn's pair. PyG's loader needs pyg-lib or torch-sparse. docs/pyg.md has
figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean, median, stdev
from typing import Annotated, NamedTuple

import typer

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


class Run(NamedTuple):
    """What a script printed."""

    accuracy: float
    seconds: float


def run(script: str, arguments: list[str], threads: int) -> Run:
    """One training; its loader's threads do not spin while they wait."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / script), *arguments]
    words = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    return Run(float(words[1]), float(words[3]))


def row(name: str, runs: list[Run], pairs: list[float]) -> str:
    """A line of the table; `pairs` are epochs of this side over those of spsample."""
    accuracy = f"{100 * mean(r.accuracy for r in runs):.1f} ± {100 * stdev(r.accuracy for r in runs):.1f} %"
    ratio = f"{median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})"
    return f"| {name} | {accuracy} | {median(r.seconds for r in runs):.3f} s | {ratio} |"


def main(
    source: str,
    runs: Annotated[int, typer.Option(min=2, help="Random seeds.")] = 6,
    epochs: int = 5,
    workers: Annotated[list[int] | None, typer.Option(help="Of PyG's loader; may be given more than once.")] = None,
    threads: int = 2,
) -> None:
    """Run both scripts in turn."""
    sides = {f"PyG, {number} workers": ("train_pyg.py", str(number)) for number in workers or [0]}
    sides["spsample"] = ("train_spsample.py", "0")
    found: dict[str, list[Run]] = {name: [] for name in sides}
    for seed in range(runs):
        for name, (script, number) in sides.items():
            found[name].append(run(script, [source, str(seed), str(epochs), number], threads))
            print(json.dumps({"source": source, "side": name, "seed": seed, **found[name][-1]._asdict()}), flush=True)
    print(f"\n| {source} | accuracy | epoch | epoch over that of spsample, each seed's pair |\n|---|---|---|---|")
    for name, own in found.items():
        print(row(name, own, [one.seconds / ours.seconds for one, ours in zip(own, found["spsample"], strict=True)]))


if __name__ == "__main__":
    typer.run(main)
