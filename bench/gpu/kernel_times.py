"""Milliseconds of each kernel of a bulk and of the host beside them; or one bulk alone, for a profiler to look at."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from gpu.machine import folder_of, gpu_facts, has_gpu
from gpu.sampling import Batches, BatchSize, Graph, GraphCache, Out
from gpu.turns import Events
from graphs import draw_seeds
from peers.cuda_timing import milliseconds
from report import write_lines
from spsample.backends import get_backend

SAMPLERS: dict[str, sp.Sampler] = {
    "uniform": sp.GraphSAGE([15, 10, 5]),
    "weighted": sp.GraphSAGE([15, 10, 5]),
    "ladies": sp.LADIES([512, 512, 512]),
    "fastgcn": sp.FastGCN([512, 512, 512]),
}
WARM_UP = 3

Sample = Callable[[int], sp.BulkSample]
"""Samples the bulk of an epoch."""

Case = Annotated[str, typer.Option(help=f"What is sampled: {', '.join(SAMPLERS)}.")]
Profiler = Annotated[bool, typer.Option(help="One bulk, between the calls that start and stop Nsight's profilers.")]


class Launches(NamedTuple):
    """All launches of one kernel in a bulk."""

    kernel: str
    launches: int
    work: int
    milliseconds: float


class BulkTime(NamedTuple):
    """Of one bulk: until the call returned, and until the GPU had done all of it."""

    edges: int
    host_milliseconds: float
    milliseconds: float


def launches_of(device: Any, events: Events, work: Callable[[], Any]) -> list[Launches]:
    """The kernels that `work` launches on a device, each between two events, the slowest first."""
    marks: list[tuple[str, int, Any, Any]] = []
    launch = device.launch

    def marked(kernel: Any, variant: Any, pieces: int, arguments: Any) -> None:
        begin, end = events(), events()
        begin.record()
        launch(kernel, variant, pieces, arguments)
        end.record()
        marks.append((kernel.name, pieces, begin, end))

    device.launch = marked
    try:
        work()
    finally:
        del device.launch  # the method of its class again
    for *_, end in marks[-1:]:
        end.synchronize()
    return joined((name, pieces, milliseconds(begin, end)) for name, pieces, begin, end in marks)


def joined(marks: Iterable[tuple[str, int, float]]) -> list[Launches]:
    """One line for each kernel, the slowest first."""
    sums: dict[str, Launches] = {}
    for name, pieces, took in marks:
        known = sums.get(name, Launches(name, 0, 0, 0.0))
        sums[name] = Launches(name, known.launches + 1, known.work + pieces, known.milliseconds + took)
    return sorted(sums.values(), key=lambda one: -one.milliseconds)


def bulk_times(sample: Sample, epochs: Iterable[int], settle: Callable[[], None]) -> list[BulkTime]:
    """Each bulk alone: `settle` waits for the GPU."""
    times = []
    for epoch in epochs:
        settle()
        begin = time.perf_counter()
        bulk = sample(epoch)
        returned = time.perf_counter()
        settle()
        done = time.perf_counter()
        times.append(BulkTime(bulk.num_edges, (returned - begin) * 1e3, (done - begin) * 1e3))
    return times


def bulks(folder: Path, case: str, batches: int, batch_size: int) -> Sample:
    """Bulks of a graph in the memory of the GPU."""
    indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
    weights = None
    if case == "weighted":
        weights = np.random.default_rng(2).standard_exponential(len(indices), np.float32)
    graph = sp.DeviceGraph(sp.Graph(indptr, indices, weights, validate=False))
    seeds = draw_seeds(indptr, batches, batch_size)
    call = {"batch_size": seeds.shape[1], "backend": "cuda"}
    return lambda epoch: sp.bulk_sample(graph, seeds.ravel(), SAMPLERS[case], epoch=epoch, **call)


def kernels(
    graph: Graph = "rmat:21,32",
    case: Case = "uniform",
    batches: Batches = 196,
    batch_size: BatchSize = 1024,
    profiler: Profiler = False,
    graph_cache: GraphCache = Path("build/graphs"),
    out: Out = Path("bench/results"),
) -> None:
    """Each kernel of a bulk: launches, pieces of work and milliseconds; and whole bulks, with what the host takes."""
    if case not in SAMPLERS:
        raise typer.BadParameter(f"{case!r} is none of {', '.join(SAMPLERS)}", param_hint="--case")
    if not has_gpu():
        raise typer.BadParameter("there is no GPU here, or CuPy does not find it", param_hint="kernels")
    import cupy
    from cupyx.profiler import profile

    settle = cupy.cuda.Device().synchronize
    sample = bulks(folder_of(graph, graph_cache or Path("build/graphs")), case, batches, batch_size)
    times = bulk_times(sample, range(WARM_UP if profiler else WARM_UP + 5), settle)[WARM_UP:]
    if profiler:
        with profile():
            sample(WARM_UP)
            settle()
        return
    device: Any = get_backend("cuda").device  # type: ignore[attr-defined]
    found = launches_of(device, cupy.cuda.Event, partial(sample, WARM_UP))
    write(out / f"gpu-kernels-{case}.jsonl", times, found)
    show(times, found, Console(width=120) if not sys.stdout.isatty() else Console())


def write(path: Path, times: list[BulkTime], found: list[Launches]) -> None:
    """JSON lines: the machine, a line for each bulk and one for each kernel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"kind": kind, **one._asdict()} for kind, some in (("bulk", times), ("kernel", found)) for one in some]
    write_lines(path, gpu_facts(1), [], [])
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)


def show(times: list[BulkTime], found: list[Launches], console: Console) -> None:
    """A line for each bulk, and a table of the kernels."""
    for one in times:
        host = f"the call returned after {one.host_milliseconds:.2f} ms"
        console.print(f"bulk: {one.milliseconds:.2f} ms, {one.edges:,} edges; {host}", markup=False)
    total = sum(one.milliseconds for one in found)
    table = Table("kernel", "launches", "pieces of work", "ms", "share", title=f"{total:.2f} ms in kernels")
    for one in found:
        share = one.milliseconds / max(total, 1e-9)
        table.add_row(one.kernel, str(one.launches), f"{one.work:,}", f"{one.milliseconds:.3f}", f"{share:.1%}")
    console.print(table)
