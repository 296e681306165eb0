"""Gathering the features of sampled vertices: spsample's kernel with a hot part of any size, and torch.index_select."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
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
from gpu.turns import Events, results_of, take_turns, timed
from graphs import draw_seeds
from peers.task import Figures, Work
from report import plot, table

TORCH = "torch.index_select"
HOT = (0.0, 0.2, 1.0)


def features(
    graph: Annotated[str, typer.Option(help="Graph, as `spsample train` takes it.")] = "rmat:21,32",
    batches: Annotated[int, typer.Option(help="Batches whose source vertices are gathered.")] = 16,
    batch_size: Annotated[int, typer.Option(help="b, seeds of a batch.")] = 1024,
    dim: Annotated[int, typer.Option(help="Features of a vertex, float32.")] = 100,
    hot: Annotated[list[float] | None, typer.Option(help="Shares on the GPU; 0, 0.2 and 1, by default.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("bench/results"),
) -> None:
    """Rows of features by the sources of GraphSAGE (15,10,5) batches."""
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    torch.cuda.init()
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        folder = folder_of(graph, graph_cache or Path(scratch))
        local = sp.Graph(np.load(folder / "indptr.npy"), np.load(folder / "indices.npy"), validate=False)
    x = np.random.default_rng(3).standard_normal((local.num_nodes, dim), np.float32)
    seeds = draw_seeds(local.indptr, batches, batch_size)
    ids = source_nodes(sp.DeviceGraph(local), seeds, "cuda")
    scores = sp.features.score("posterior", local, seeds.ravel(), _SAMPLER, batch_size)
    ours = {side_name(share): sp.DeviceFeatures(x, share, scores).gather for share in hot or HOT}
    on_device = torch.from_numpy(x).cuda()
    gathers = {TORCH: lambda rows: on_device.index_select(0, torch.from_dlpack(rows)), **ours}
    turns = take_turns(gather_works(gathers, ids, dim, partial(torch.cuda.Event, enable_timing=True)), rounds)
    peers = {"": ("spsample cuda", sp.__version__), TORCH: ("torch", torch.__version__)}
    results = results_of(graph, "features", turns, baseline=TORCH, peers=peers)
    out.mkdir(parents=True, exist_ok=True)
    ratios = [ratio for name in ours for ratio in summary.ratios_of(graph, "features", name, turns)]
    summary.write(out / "gpu-features.jsonl", gpu_facts(1), results, ratios, [])
    plot(results, f"{graph}, {dim} features", out / "gpu-features.png")
    console.print(table(results))


def side_name(share: float) -> str:
    """Of features of which a share lies on the GPU."""
    return f"spsample, {share:.0%} hot"


def source_nodes(graph: Any, seeds: np.ndarray, backend: str) -> list[Any]:
    """The vertices whose features each batch needs."""
    options = {"batch_size": seeds.shape[1], "backend": backend}
    return [minibatch.src_nodes for minibatch in sp.bulk_sample(graph, seeds.ravel(), _SAMPLER, **options)]


_SAMPLER = sp.GraphSAGE([15, 10, 5])


def gather_works(
    gathers: dict[str, Callable[[Any], Any]], ids: Sequence[Any], dim: int, events: Events
) -> dict[str, Work]:
    """Each way to gather the rows of all batches, one after the other; bytes are those read and written."""
    rows = sum(map(len, ids))
    moved = sum(len(some) * some.dtype.itemsize for some in ids) + rows * 2 * dim * 4

    def gather_all(gather: Callable[[Any], Any]) -> Figures:
        for some in ids:
            gather(some)
        return {"batches": len(ids), "rows": rows, "bytes": moved}

    return {name: timed(partial(gather_all, gather), events) for name, gather in gathers.items()}
