"""What a change of structure must leave as it is: samples, losses, traffic, names and options.

    python tests/by_hand/fence.py write build/before.json         # on the commit before; ten minutes on two cores
    python tests/by_hand/fence.py compare build/before.json build/after.json
    python tests/by_hand/fence.py times ../before/.venv/bin/python .venv/bin/python
    python tests/by_hand/fence.py memory ../before/.venv/bin/python .venv/bin/python

`compare` lists what differs and ends with status 1 where samples, losses or bytes do; names and options that went or
came are listed and do not fail. `times` runs ten measurements in turns, one thread each, as processor time. `memory`
runs each of them in a process of its own, and has its peak.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import click
import numpy as np
import scipy.stats
import torch
import typer
from torch_geometric.data import Data

import spsample
from spsample.comm import Communicator, Recorder, run_threads
from spsample.distributed import PartitionedGraph, ProcessGrid

SLOWER = 1.03
GRAPHS = ["rmat:10,8", "rmat:12,16", "planted:2000,8", "planted:900,30"]
SMALL = [
    "--set",
    "log_every=1",
    "--set",
    "bulk_size=4",
    "--set",
    "eval_every=2",
    "--batch-size",
    "64",
    "--hidden",
    "32",
]
RUNS = {
    "sync": (1, ["--pipeline", "sync"]),
    "overlap": (1, ["--pipeline", "overlap", "--set", "dropout=0.4"]),
    "ladies": (1, ["--sampler", "ladies", "--layer-sizes", "256,256"]),
    "fastgcn": (1, ["--sampler", "fastgcn", "--layer-sizes", "256,256", "--model", "gcn"]),
    "gat": (1, ["--model", "gat", "--set", "warmup_epochs=1"]),
    "residual": (1, ["--model", "residual"]),
    "precomputed": (1, ["--model", "precomputed-sage"]),
    "cache": (1, ["--set", "cache_budget=64KiB"]),
    "lookahead": (1, ["--set", "cache_budget=64KiB", "--set", "cache_replacement=lookahead"]),
    "fetch": (2, ["--set", "fetch=bulk"]),
    "partitioned": (4, ["--replication", "2"]),
    "stages": (4, ["--replication", "2", "--set", "algorithm=stages", "--model", "gcn"]),
    "hubs": (2, ["--set", "replicate_hubs=16KiB", "--set", "cache_budget=32KiB"]),
    "replicated": (2, ["--replicated"]),
    "local": (2, ["--set", "batches=local"]),
    "factored": (3, ["--pipeline", "factored", "--replicated", "--set", "sampler_ranks=1"]),
    "cooperative": (2, ["--pipeline", "cooperative"]),
}


def digests() -> dict[str, str]:
    """SHA-256 of 1,464 bulks: ranks 1, 2 and 4, every c, every algorithm that users and tests have."""
    from same_bulks import Plan, compare  # reads names that later commits may move

    with TemporaryDirectory() as cache:
        plan = Plan(GRAPHS, hubs="16KiB", batches=12, batch_size=16, cache=Path(cache))
        results = [one for p in (1, 2, 4) for one in run_threads(p, lambda comm: list(compare(comm, plan)))[0]]
    return {" ".join(map(str, one[:-1])): one.digest for one in results}


def losses(run: str) -> dict[str, str]:
    """Losses and scores of two epochs, and of one that is resumed for another."""
    ranks, options = RUNS[run]
    with TemporaryDirectory() as folder:
        whole, halves = Path(folder, "whole"), Path(folder, "halves")
        _train(ranks, ["planted:2000,8", *SMALL, *options, "--epochs", "2", "--out", str(whole)])
        _train(ranks, ["planted:2000,8", *SMALL, *options, "--epochs", "1", "--out", str(halves)])
        _train(ranks, ["--resume", str(halves), "--epochs", "2"])
        return {f"{run}, at once": _history(whole), f"{run}, resumed": _history(halves)}


def _train(ranks: int, arguments: list[str]) -> None:
    launch = [] if ranks == 1 else ["launch", "-n", str(ranks), "--backend", "gloo"]
    command = [sys.executable, "-m", "spsample.cli.main", *launch, "train", *arguments]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _environment() -> dict[str, str]:
    """One thread, and the package of the interpreter even where the working directory has another."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}


def _history(folder: Path) -> str:
    """A hash of all losses and of the scores, which the first of the losses precedes."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [(line["epoch"], line["step"], line["loss"]) for line in lines if line["kind"] == "steps"]
    (run,) = json.loads((folder / "results.json").read_text())["runs"]
    text = json.dumps([steps, run["val"], run["test"]])
    return f"{steps[0][-1]:.6f} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def traffic() -> dict[str, str]:
    """Bytes and messages by phase of one bulk on four ranks, as the recorder has them."""
    graph = spsample.load_dataset("rmat:12,16").graph
    seeds = np.arange(512) * 7 % graph.num_nodes

    def on_ranks(comm: Communicator, sampler: Any, algorithm: str, c: int) -> str:
        recorder = Recorder(comm)
        mine = PartitionedGraph.from_graph(graph, ProcessGrid(recorder, c), algorithm=algorithm)
        spsample.bulk_sample(mine, seeds, sampler, batch_size=32, random_seed=3)
        return str(sorted((phase, asdict(counts)) for phase, counts in recorder.traffic.phases.items()))

    found = {}
    for sampler in (spsample.GraphSAGE([10, 5]), spsample.LADIES([128, 128])):
        for algorithm in ("column", "stages"):
            for c in (1, 2):
                ranks = run_threads(4, partial(on_ranks, sampler=sampler, algorithm=algorithm, c=c))
                found[f"{sampler} {algorithm} c = {c}"] = hashlib.sha256("".join(ranks).encode()).hexdigest()[:16]
    return found


def names() -> list[str]:
    """Public names of every room, and the options of every command."""
    found = [f"spsample.{name}" for name in spsample.__all__]
    for module in pkgutil.iter_modules(spsample.__path__, "spsample."):
        if module.ispkg:
            found += [f"{module.name}.{name}" for name in getattr(importlib.import_module(module.name), "__all__", ())]
    from spsample.cli.main import app as commands

    def options(command: click.Command, path: str) -> None:
        found.extend(f"{path} {flag}" for option in command.params for flag in option.opts)
        for name, child in getattr(command, "commands", {}).items():
            options(child, f"{path} {name}")

    options(typer.main.get_command(commands), "spsample")
    return sorted(set(found))


# --------------------------------------------------------------------------------------------------------------- times


def timings() -> dict[str, Callable[[], object]]:
    """Ten calls that users make, each of some hundred milliseconds."""
    from spsample.features import CachedFeatures, FeatureStore, PartitionedFeatures
    from spsample.pyg import NeighborLoader

    data = spsample.load_dataset("rmat:16,16")
    graph = data.graph
    weights = np.random.default_rng(0).exponential(1.0, graph.num_edges).astype(np.float32)
    weighted = spsample.Graph(graph.indptr, graph.indices, weights)
    seeds = np.random.default_rng(1).permutation(graph.num_nodes)[: 64 * 512]
    x = np.random.default_rng(2).standard_normal((graph.num_nodes, 100)).astype(np.float32)
    options = {"batch_size": 512, "random_seed": 1}
    sage = spsample.GraphSAGE([15, 10, 5])
    scores = graph.in_degrees().astype(np.float64)
    cached = CachedFeatures(FeatureStore(x), x.nbytes // 10, scores)
    targets = np.repeat(np.arange(graph.num_nodes), graph.in_degrees())
    pyg = Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(np.stack([graph.indices, targets]).astype(np.int64)))

    def on_ranks(comm: Communicator) -> None:
        grid = ProcessGrid(comm, 2)
        mine = PartitionedGraph.from_graph(graph, grid)
        rows = PartitionedFeatures.of(x, grid)
        for batch in spsample.BulkLoader(mine, seeds, spsample.GraphSAGE([10, 5]), features=rows, **options):
            assert batch.x is not None

    def imported() -> None:
        for batch in NeighborLoader(pyg, [15, 10, 5], input_nodes=torch.from_numpy(seeds), batch_size=512):
            assert batch.x is not None

    def loaded(**more: object) -> None:
        for batch in spsample.BulkLoader(graph, seeds, sage, **options, **more):
            assert batch.x is not None

    return {
        "GraphSAGE": lambda: spsample.bulk_sample(graph, seeds, sage, **options),
        "GraphSAGE, weighted": lambda: spsample.bulk_sample(weighted, seeds, sage, **options),
        "LADIES": lambda: spsample.bulk_sample(graph, seeds, spsample.LADIES([512, 512]), **options),
        "FastGCN": lambda: spsample.bulk_sample(graph, seeds, spsample.FastGCN([512, 512]), **options),
        "loader": lambda: loaded(features=x),
        "loader, in turn": lambda: loaded(features=x, prefetch=0),
        "cache": lambda: loaded(features=cached),
        "ranks": lambda: run_threads(4, on_ranks),
        "NeighborLoader": imported,
        "train": lambda: _train(1, ["planted:20000,8", "--epochs", "1", "--set", "eval_every=5"]),
    }


def _processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.command()
def write(out: Path, only: Annotated[list[str], typer.Option(help="Only these runs of `train`.")] = []) -> None:  # noqa: B006
    """Write all of it as JSON."""
    parts = {"losses": {key: value for run in (only or RUNS) for key, value in losses(run).items()}}
    if not only:
        parts |= {"bulks": digests(), "traffic": traffic(), "names": dict.fromkeys(names(), "")}
    out.write_text(json.dumps(parts, indent=1))
    print(", ".join(f"{len(values)} {part}" for part, values in parts.items()))


@app.command(name="compare")
def compare_files(before: Path, after: Path) -> None:
    """List what differs."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    failed = 0
    for part in new:
        common = old[part].keys() & new[part].keys()
        differs = sorted(key for key in common if old[part][key] != new[part][key])
        failed += len(differs)
        print(f"{part}: {len(common)} in both, {len(differs)} differ")
        print("".join(f"  differs: {key}: {old[part][key]} {new[part][key]}\n" for key in differs), end="")
        print("".join(f"  went: {key}\n" for key in sorted(old[part].keys() - new[part].keys())), end="")
        print("".join(f"  came: {key}\n" for key in sorted(new[part].keys() - old[part].keys())), end="")
    raise typer.Exit(1 if failed else 0)


@app.command()
def measure(rounds: int) -> None:
    """Processor seconds of each timing, a line of JSON a round; `times` calls it in each interpreter."""
    calls = timings()
    for number in range(rounds + 1):
        seconds = {}
        for name, call in calls.items():
            begin = _processor_seconds()
            call()
            seconds[name] = _processor_seconds() - begin
        if number:  # the first round warms up
            print(json.dumps(seconds), flush=True)


@app.command()
def times(before: Path, after: Path, rounds: int = 5, turns: int = 3) -> None:
    """Ratios of processor time, after over before: the median, and its 95 % interval by the bootstrap."""
    command = [str(Path(__file__)), "measure", str(rounds)]
    sides: list[list[dict[str, float]]] = [[], []]
    for _ in range(turns):
        for side, python in zip(sides, (before, after), strict=True):
            done = subprocess.run([python, *command], env=_environment(), capture_output=True, text=True, check=True)
            side += map(json.loads, done.stdout.splitlines())
    for name in sides[0][0]:
        old, new = (np.array([one[name] for one in side]) for side in sides)
        drawn = scipy.stats.bootstrap((new, old), _ratio, method="percentile", vectorized=False, rng=0)
        low, high = drawn.confidence_interval
        alarm = "  SLOWER" if low > SLOWER else ""
        print(f"{name:20} {np.median(old):7.3f} s  {_ratio(new, old):.3f}  [{low:.3f}, {high:.3f}]{alarm}")


@app.command()
def peak(name: str, calls: int = 3) -> None:
    """MiB of memory that some calls of one timing add to those of the process and its inputs; `memory` calls it."""
    call = timings()[name]
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _peak_kib()
    for _ in range(calls):
        call()
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(children / 1024 if name == "train" else (_peak_kib() - before) / 1024)


def _peak_kib() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


@app.command()
def memory(before: Path, after: Path, turns: int = 3) -> None:
    """Ratios of peak memory, after over before: medians of several processes."""
    for name in timings():
        sides: list[list[float]] = [[], []]
        for _ in range(turns):
            for side, python in zip(sides, (before, after), strict=True):
                command = [python, str(Path(__file__)), "peak", name]
                done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True)
                side.append(float(done.stdout))
        old, new = map(np.array, sides)
        print(f"{name:20} {np.median(old):7.1f} MiB  {_ratio(new, old):.3f}", flush=True)


def _ratio(new: np.ndarray, old: np.ndarray) -> float:
    return float(np.median(new) / np.median(old))


if __name__ == "__main__":
    app()
