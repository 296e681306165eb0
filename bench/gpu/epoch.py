"""An epoch of training by phases, as in figure 4 of the paper: sampling, gathering features, training."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console

import spsample as sp
from gpu import summary
from gpu.machine import folder_of, gpu_facts
from gpu.turns import Events, HostEvent, results_of, timed, turn_of
from graphs import draw_seeds
from peers.cuda_timing import milliseconds
from peers.task import Figures
from report import Result, Turn, plot, table
from spsample.training.blocks import Block
from spsample.training.models import ModelConfig, build_model

WHOLE = "whole epoch, nothing ahead"
AHEAD = "whole epoch, prefetch"
COPIED = "whole epoch, sampled on the CPU and copied, nothing ahead"
COPIED_AHEAD = "whole epoch, sampled on the CPU and copied ahead"
MOST_SAMPLING = 0.03
"""Of the epoch: what sampling is meant to take."""


def epoch(
    graph: Annotated[str, typer.Option(help="Graph, as `spsample train` takes it.")] = "rmat:21,32",
    batches: Annotated[int, typer.Option(help="Batches of the epoch.")] = 196,
    batch_size: Annotated[int, typer.Option(help="b, seeds of a batch.")] = 1024,
    bulk_size: Annotated[int, typer.Option(help="k, batches of a bulk.")] = 196,
    features: Annotated[int, typer.Option(help="Features of a vertex.")] = 100,
    hidden: Annotated[int, typer.Option(help="Width of the hidden layers.")] = 256,
    rounds: Annotated[int, typer.Option(help="Epochs after the warm-up.")] = 3,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("bench/results"),
) -> None:
    """GraphSAGE (15,10,5), three layers: graph and features on the GPU, and both on the host."""
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    torch.cuda.init()
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        folder = folder_of(graph, graph_cache or Path(scratch))
        local = sp.Graph(np.load(folder / "indptr.npy"), np.load(folder / "indices.npy"), validate=False)
    task = Task.random(local.num_nodes, features, draw_seeds(local.indptr, 1, batches * batch_size)[0])
    source = sp.features.DeviceFeatures(task.x, hot=1.0)
    settings = Settings(batch_size=batch_size, bulk_size=bulk_size, hidden=hidden)
    places = Places(sp.DeviceGraph(local), source, local, torch.device("cuda"))
    run = Run(places, task, settings)
    rounds_ = [run.round() for _ in range(rounds + 1)][1:]
    turns = {name: [one[name] for one in rounds_] for name in rounds_[0]}
    peers = {"": ("spsample cuda", sp.__version__)}
    results = results_of(graph, "epoch", turns, baseline=WHOLE, peers=peers)
    out.mkdir(parents=True, exist_ok=True)
    ratios = summary.ratios_of(graph, "epoch", "sampling", turns)
    summary.write(out / "gpu-epoch.jsonl", gpu_facts(1), results, ratios, [])
    plot(results, f"{graph}, {batches} batches of {batch_size}, by phase", out / "gpu-epoch.png")
    console.print(table(results))
    console.print(verdict(results), markup=False)


def verdict(results: list[Result]) -> str:
    """The share of sampling in the epoch, against what it is meant to be."""
    share = next(result.over_baseline for result in results if result.side == "sampling") or 0.0
    reached = "reached" if share <= MOST_SAMPLING else "missed"
    return f"sampling takes {share:.2%} of the epoch (goal {MOST_SAMPLING:.0%}: {reached})"


@dataclass(frozen=True)
class Settings:
    """Sizes of an epoch; fanouts nearest to the seeds first."""

    batch_size: int = 1024
    bulk_size: int = 196
    hidden: int = 256
    fanouts: tuple[int, ...] = (15, 10, 5)


@dataclass(frozen=True, eq=False)
class Task:
    """Features (float32) and labels of all vertices, and the vertices to train on."""

    x: np.ndarray
    y: np.ndarray
    seeds: np.ndarray
    classes: int

    @classmethod
    def random(cls, num_nodes: int, num_features: int, seeds: np.ndarray, classes: int = 32) -> Task:
        """Labels that nobody can learn: what is measured is time."""
        rng = np.random.default_rng(3)
        x = rng.standard_normal((num_nodes, num_features), np.float32)
        return cls(x, rng.integers(0, classes, num_nodes), seeds, classes)


@dataclass(frozen=True, eq=False)
class Places:
    """The graph and features of the device, and the graph of the host whose batches are copied."""

    graph: Any
    features: Any
    host: sp.Graph
    device: torch.device


class Run:
    """Epochs on one graph.

    The phases `sampling` (all bulks of an epoch) and `features` (those of all batches) are measured on their own, by
    events around the same calls that the loader makes; `training` is the sum of the steps within an epoch of the
    loader that does everything when it is asked for. What the epoch takes beyond the three is the loader's own.
    The same epoch is trained from batches that the CPU samples, with their features, copied when asked for or ahead.
    """

    def __init__(self, places: Places, task: Task, settings: Settings) -> None:
        device = places.device
        self._device, self._features = device, places.features
        self._events: Events = _events_of(device)
        torch.manual_seed(0)
        config = ModelConfig("sage", hidden=settings.hidden)
        self._model = build_model(task.x.shape[1], task.classes, len(settings.fanouts), config).to(device)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=1e-3, fused=device.type == "cuda")
        call = (task.seeds, sp.GraphSAGE(list(settings.fanouts)))
        options = {"batch_size": settings.batch_size, "labels": task.y}
        there = {**options, "bulk_size": settings.bulk_size, "features": places.features}
        here = {**options, "features": task.x, "device": device}
        self._loaders = {
            WHOLE: sp.BulkLoader(places.graph, *call, **there, prefetch=0),
            AHEAD: sp.BulkLoader(places.graph, *call, **there, prefetch=1),
            COPIED: sp.BulkLoader(places.host, *call, **here, prefetch=0),
            COPIED_AHEAD: sp.BulkLoader(places.host, *call, **here),
        }

    def round(self) -> dict[str, Turn]:
        """Each phase, and the epoch of each loader."""
        self._steps: list[float] = []
        turns = {
            "sampling": turn_of(timed(self._sampling, self._events)),
            "features": turn_of(self._features_of_all),
            WHOLE: turn_of(timed(partial(self._epoch, WHOLE), self._events)),
        }
        turns["training"] = Turn(sum(self._steps), 0.0, turns[WHOLE].figures)
        for name in (AHEAD, COPIED, COPIED_AHEAD):
            turns[name] = turn_of(timed(partial(self._epoch, name), self._events))
        return turns

    def _bulks(self) -> Iterator[Any]:
        loader = self._loaders[WHOLE]
        return loader.bulks(loader.epoch)

    def _sampling(self) -> Figures:
        sizes = [(len(bulk), bulk.num_edges) for bulk in self._bulks()]
        return {"batches": sum(batches for batches, _ in sizes), "edges": sum(edges for _, edges in sizes)}

    def _features_of_all(self) -> Figures:
        total: dict[str, float] = {"batches": 0, "rows": 0, "seconds": 0.0}
        for bulk in self._bulks():
            figures = timed(partial(self._gathered, bulk), self._events)()
            total = {name: value + figures[name] for name, value in total.items()}
        return total

    def _gathered(self, bulk: Any) -> Figures:
        return {"batches": len(bulk), "rows": sum(len(self._features.gather(mb.src_nodes)) for mb in bulk)}

    def _epoch(self, name: str) -> Figures:
        """One pass of a loader; afterwards `_steps` has the seconds of each step."""
        marks = []
        for batch in self._loaders[name]:
            start, end = self._events(), self._events()
            start.record()
            self._step(batch)
            end.record()
            marks.append((start, end))
        marks[-1][1].synchronize()
        self._steps = [milliseconds(start, end) / 1e3 for start, end in marks]
        return {"batches": len(marks)}

    def _step(self, batch: Any) -> None:
        blocks = [block_of(layer, self._device) for layer in batch.layers]
        logits = self._model(tensor_of(batch.x, self._device), blocks)
        loss = torch.nn.functional.cross_entropy(logits, tensor_of(batch.y, self._device))
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


def _events_of(device: torch.device) -> Events:
    return partial(torch.cuda.Event, enable_timing=True) if device.type == "cuda" else HostEvent


def block_of(layer: Any, device: torch.device) -> Block:
    """The mean over a layer's entries, on the device where its arrays are to lie."""
    indptr, indices = (tensor_of(array, device).long() for array in (layer.adj.indptr, layer.adj.indices))
    counts = indptr.diff()
    values = (1.0 / counts.clamp(min=1)).float().repeat_interleave(counts, output_size=len(indices))
    return Block(indptr, indices, values, int(layer.adj.shape[1]))


def tensor_of(array: Any, device: torch.device) -> torch.Tensor:
    """A tensor, an array of CuPy or one of NumPy as a tensor on the device; on the host it may share the memory."""
    if isinstance(array, torch.Tensor):
        return array.to(device)
    if isinstance(array, np.ndarray):
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(device)
    return torch.from_dlpack(array).to(device)
