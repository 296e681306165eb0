"""A large graph sampled on the GPU: from its own memory, and by zero copy from the host, hot rows cached or not."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import spsample as sp
from gpu import summary
from gpu.machine import gpu_facts
from gpu.rmat import device_pairs, rmat_csr
from gpu.turns import Events, results_of, take_turns, timed
from graphs import draw_seeds
from peers.task import Figures, Work
from report import Turn, plot, table

ON_DEVICE = "entries on the device"
BUS = "bus: 32 bytes an entry"
SECTOR = 32
STAGED = 1 << 30
"""Bytes of one copy over the bus."""


def zero_copy(
    graph: Annotated[str, typer.Option(help="rmat:SCALE,EDGE_FACTOR; made on the GPU.")] = "rmat:27,6",
    batches: Annotated[int, typer.Option(help="k, batches of a bulk.")] = 64,
    batch_size: Annotated[int, typer.Option(help="b, seeds of a batch.")] = 1024,
    cached: Annotated[list[float] | None, typer.Option(help="Shares of the entries kept on the GPU.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("bench/results"),
) -> None:
    """GraphSAGE (15,10,5) on a graph of the size of papers100M, by where its entries lie."""
    import cupy

    console = Console(width=160) if not sys.stdout.isatty() else Console()
    made = rmat_csr(*rmat_sizes(graph), device_pairs())
    host = sp.Graph(cupy.asnumpy(made.indptr), cupy.asnumpy(made.indices), validate=False)
    console.print(f"{graph}: {host.num_nodes:,} vertices, {host.num_edges:,} entries, made on the GPU", markup=False)
    graphs = {ON_DEVICE: sp.DeviceGraph.from_arrays(made.indptr, made.indices)}
    for share in (0.0, 0.2) if cached is None else cached:
        graphs[side_name(share)] = sp.DeviceGraph(host, entries=share or "host")
    seeds = draw_seeds(host.indptr, batches, batch_size)
    sampler = sp.GraphSAGE([15, 10, 5])
    works = bulk_works(graphs, seeds, sampler, "cuda", cupy.cuda.Event)
    edges = int(_bulk(graphs[ON_DEVICE], seeds, sampler, "cuda", 0)["edges"])
    works[BUS] = bus_work(batches, edges, cupy)
    turns = take_turns(works, rounds)
    require_equal_edges(turns)
    peers = {"": ("spsample cuda", sp.__version__), BUS: ("memory", cupy.__version__)}
    results = results_of(graph, "zero-copy", turns, baseline=ON_DEVICE, peers=peers)
    ratios = summary.ratios_of(graph, "zero-copy", ON_DEVICE, turns)
    out.mkdir(parents=True, exist_ok=True)
    summary.write(out / "gpu-zero-copy.jsonl", gpu_facts(1), results, ratios, [])
    plot(results, f"{graph}, {batches} batches in one bulk", out / "gpu-zero-copy.png")
    console.print(table(results))


def rmat_sizes(spec: str) -> tuple[int, int]:
    """Scale and edge factor of rmat:SCALE,EDGE_FACTOR."""
    name, _, sizes = spec.partition(":")
    parts = sizes.split(",")
    if name != "rmat" or len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise typer.BadParameter(f"{spec!r} is not rmat:SCALE,EDGE_FACTOR", param_hint="--graph")
    return int(parts[0]), int(parts[1])


def side_name(share: float) -> str:
    """Of a graph whose entries lie on the host but for a share of them."""
    return f"on the host, {share:.0%} cached" if share else "entries on the host"


def bulk_works(
    graphs: dict[str, Any], seeds: np.ndarray, sampler: sp.Sampler, backend: str, events: Events
) -> dict[str, Work]:
    """A bulk of all seeds on each of the graphs; the n-th of each is epoch n, so that all draw the same."""
    return {name: _bulk_work(partial(_bulk, graph, seeds, sampler, backend), events) for name, graph in graphs.items()}


def _bulk(graph: Any, seeds: np.ndarray, sampler: sp.Sampler, backend: str, epoch: int) -> Figures:
    bulk = sp.bulk_sample(graph, seeds.ravel(), sampler, batch_size=seeds.shape[1], epoch=epoch, backend=backend)
    return {"batches": len(seeds), "edges": bulk.num_edges}


def _bulk_work(sample: Any, events: Events) -> Work:
    epochs = iter(range(1, 1 << 62))
    return timed(lambda: sample(next(epochs)), events)


def bus_work(batches: int, edges: int, cupy: Any) -> Work:
    """A sector for each sampled entry, copied from page-locked memory: the least that zero copy moves, and in order."""
    total = SECTOR * edges
    pinned = cupy.cuda.alloc_pinned_memory(min(STAGED, total))
    target = cupy.empty(min(STAGED, total), cupy.uint8)

    def work() -> Figures:
        for begin in range(0, total, STAGED):
            target.data.copy_from_host_async(pinned.ptr, min(STAGED, total - begin))
        return {"batches": batches, "bytes": total}

    return timed(work, cupy.cuda.Event)


def require_equal_edges(turns: dict[str, list[Turn]]) -> None:
    """All graphs are one graph, and gave the same samples."""
    counts = {name: [turn.figures["edges"] for turn in some] for name, some in turns.items() if name != BUS}
    if len({tuple(some) for some in counts.values()}) > 1:
        raise RuntimeError(f"the samples differ by where the entries lie: {counts}")
