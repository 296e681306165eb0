"""Features of a batch by the share of rows on the GPU: gathered on the CPU and copied, by zero copy, or from two tiers.

The batches are those of a traced run (`traces.py`). A batch's vertex ids lie on the GPU, where a bulk leaves them, and
its rows are wanted there.

- Gathered on the CPU: ids to the host, rows gathered by its threads into page-locked memory, one copy.
- Zero copy: one kernel reads all rows from page-locked memory over the bus.
- Tiered: the same kernel; the rows of the largest scores `posterior` lie in the GPU's memory. With no row there it is
  zero copy, with all of them nothing crosses the bus.
- Copied alone: as many bytes in one piece from page-locked memory, gathered by nobody: the limit of the first two.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from figures import pyplot
from gpu import summary
from gpu.bus_counter import BusCounter
from gpu.bytes_moved import SECTOR, whole_row_sectors
from gpu.machine import folder_of, gpu_facts
from gpu.turns import Events, results_of, take_turns, timed
from peers.task import Figures, Work
from report import Result
from spsample.features.score_order import highest
from traces import Cell, cell

CPU = "gathered on the CPU"
ZERO_COPY = "zero copy"
COPY = "copied alone"
HOT = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
CASE = "hot-share"
NO_COUNTER = "bytes counted by the driver (NVML does not count them here)"


def hot_share(
    graph: Annotated[str, typer.Option(help="Graph, as `spsample train` takes it.")] = "rmat:21,32",
    batches: Annotated[int, typer.Option(help="Batches whose rows are served.")] = 16,
    dim: Annotated[int, typer.Option(help="Features of a vertex, float32.")] = 100,
    hot: Annotated[list[float] | None, typer.Option(help=f"Shares on the GPU: {HOT}, by default.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("bench/results"),
) -> None:
    """Time and bus bytes of a batch's features against the share of rows on the GPU."""
    import cupy

    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        folder = folder_of(graph, graph_cache or Path(scratch))
        local = sp.Graph(np.load(folder / "indptr.npy"), np.load(folder / "indices.npy"), validate=False)
    trace = Trace.of(cell(local, "GraphSAGE"), batches, dim)
    counter = BusCounter.of(cupy.cuda.Device().pci_bus_id)
    results = measured(graph, trace, hot or HOT, CupyMemory(cupy), rounds=rounds, counter=counter)
    write(results, out, [] if counter else [NO_COUNTER])
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    console.print(table(results.results))


class Memory(Protocol):
    """What these measurements need of a device beside spsample's own."""

    events: Events

    def page_locked(self, shape: tuple[int, int]) -> NDArray[np.float32]:
        """Memory of the host that the device copies from directly."""

    def to_host(self, array: Any) -> NDArray[Any]:
        """A copy; all work before it is done then."""

    def to_device(self, array: NDArray[Any]) -> Any:
        """A copy, which may still be under way."""

    def settle(self) -> None:
        """Wait for the device."""


class CupyMemory:
    """A GPU's, on the stream that is current."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.events = cupy.cuda.Event
        self.to_host = cupy.asnumpy
        self.settle = cupy.cuda.get_current_stream().synchronize

    def page_locked(self, shape: tuple[int, int]) -> NDArray[np.float32]:
        """Of CuPy's pool, which `shape` leads back to for as long as the array is there."""
        count = shape[0] * shape[1]
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(4 * count), np.float32, count).reshape(shape)

    def to_device(self, array: NDArray[Any]) -> Any:
        """Copied from where it lies, without CuPy's own page-locked memory between."""
        made = self._cupy.empty(array.shape, array.dtype)
        made.data.copy_from_host_async(array.ctypes.data, array.nbytes)
        return made


@dataclass(frozen=True)
class Trace:
    """Which rows are wanted batch by batch, the rows, and how much each is wanted."""

    batches: list[NDArray[np.int64]]
    x: NDArray[np.float32]
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, traced: Cell, batches: int, dim: int) -> Trace:
        """The first batches of a traced run; the scores are of a trial with keys of its own."""
        n = traced.graph.num_nodes
        scores = sp.features.score("posterior", traced.graph, traced.seeds, traced.sampler, traced.batch_size)
        x = np.random.default_rng(3).standard_normal((n, dim), np.float32)
        return cls(list(islice(traced.batches(1), batches)), x, scores)

    def cold(self, share: float) -> NDArray[np.bool_]:
        """(n,) which rows lie on the host where a share of them is on the device."""
        cold = np.ones(len(self.x), np.bool_)
        cold[highest(self.scores, int(share * len(self.x)))] = False
        return cold


class CpuGather:
    """Rows gathered by the host's threads into page-locked memory and copied from there."""

    def __init__(self, trace: Trace, memory: Memory) -> None:
        self._source = sp.FeatureStore(trace.x)
        self._memory = memory
        self._staged = memory.page_locked((max(map(len, trace.batches)), trace.x.shape[1]))

    def gather(self, ids: Any) -> Any:
        """The rows on the device. The copy of the ids waits for that of the rows before, which `_staged` then held."""
        rows = self._staged[: len(ids)]
        self._source.gather(self._memory.to_host(ids), out=rows)
        return self._memory.to_device(rows)

    def copy(self, ids: Any) -> Any:
        """As many bytes, whatever they are."""
        return self._memory.to_device(self._staged[: len(ids)])


@dataclass(frozen=True)
class Way:
    """One way to serve batches: what gathers, and what it moves."""

    gather: Callable[[Any], Any]
    figures: Figures


def side_name(share: float) -> str:
    """Of features of which a share lies on the GPU."""
    return f"tiered, {share:.0%} hot" if share else ZERO_COPY


def ways(trace: Trace, shares: Sequence[float], memory: Memory) -> dict[str, Way]:
    """By name. Zero copy is always among them."""
    cpu, all_rows = CpuGather(trace, memory), copied(trace)
    made = {CPU: Way(cpu.gather, all_rows), COPY: Way(cpu.copy, all_rows)}
    for share in sorted({0.0, *shares}):
        source = sp.DeviceFeatures(trace.x, share, trace.scores)
        made[side_name(share)] = Way(source.gather, zero_copied(trace, share))
    return made


def copied(trace: Trace) -> Figures:
    """What a copy of all rows moves: rows, bytes of rows over the bus, and bytes of the sectors that hold them."""
    rows = sum(map(len, trace.batches))
    moved = 4 * trace.x.shape[1] * rows
    return {"batches": len(trace.batches), "rows": rows, "hot_rows": 0, "bus_bytes": moved, "sector_bytes": moved}


def zero_copied(trace: Trace, share: float) -> Figures:
    """As `copied`, of rows that the device reads one by one where they lie: in whole sectors of 32 bytes."""
    cold, dim = trace.cold(share), trace.x.shape[1]
    place, ends = np.cumsum(cold) - 1, dim * np.arange(int(cold.sum()) + 1)
    wanted = [place[ids[cold[ids]]] for ids in trace.batches]
    read = sum(map(len, wanted))
    figures = copied(trace)
    return {
        **figures,
        "hot_rows": figures["rows"] - read,
        "bus_bytes": 4 * dim * read,
        "sector_bytes": SECTOR * sum(whole_row_sectors(rows, ends, 4) for rows in wanted),
    }


@dataclass(frozen=True)
class Measured:
    """What came out: a result for each side, and how they compare."""

    results: list[Result]
    ratios: list[summary.Ratio]
    shares: dict[str, float]

    @property
    def across(self) -> list[float]:
        """Percent of the rows on the device, of each tiered side."""
        return [100 * share for share in self.shares.values()]


def measured(
    graph: str,
    trace: Trace,
    shares: Sequence[float],
    memory: Memory,
    *,
    rounds: int,
    counter: BusCounter | None = None,
) -> Measured:
    """All ways in turn, round after round; before, each once under the driver's counter."""
    made = ways(trace, shares, memory)
    ids = [memory.to_device(one) for one in trace.batches]
    require_equal_rows(made, ids, memory)
    works = {name: work(way, ids, memory, counter) for name, way in made.items()}
    turns = take_turns(works, rounds)
    peers = {"": ("spsample cuda", sp.__version__), CPU: ("spsample cpu", sp.__version__), COPY: ("memory", "")}
    by_share = {side_name(share): share for share in sorted({0.0, *shares})}
    compared = [ratio for name in by_share for ratio in summary.ratios_of(graph, CASE, name, turns)]
    return Measured(results_of(graph, CASE, turns, baseline=CPU, peers=peers), compared, by_share)


def require_equal_rows(made: dict[str, Way], ids: Sequence[Any], memory: Memory) -> None:
    """All ways give the bits of the first one."""
    for some in ids:
        expected = memory.to_host(made[CPU].gather(some))
        for name, way in made.items():
            if name != COPY and not np.array_equal(memory.to_host(way.gather(some)), expected):
                raise RuntimeError(f"{name}: other rows than those {CPU}")


def work(way: Way, ids: Sequence[Any], memory: Memory, counter: BusCounter | None) -> Work:
    """All batches one after the other; `counted_bytes` are those of one pass that is not timed."""
    figures = dict(way.figures)
    steps = [partial(_settled, way.gather, some, memory) for some in ids]
    counted = None if counter is None else counter.over(steps)
    if counted is not None:
        figures["counted_bytes"] = counted

    def gather_all() -> Figures:
        for some in ids:
            way.gather(some)
        return figures

    return timed(gather_all, memory.events)


def _settled(gather: Callable[[Any], Any], ids: Any, memory: Memory) -> None:
    gather(ids)
    memory.settle()


# --- results ----------------------------------------------------------------------------------------------------------


def write(made: Measured, out: Path, missing: list[str]) -> None:
    """`gpu-hot-share.jsonl` and its picture."""
    out.mkdir(parents=True, exist_ok=True)
    summary.write(out / "gpu-hot-share.jsonl", gpu_facts(1), made.results, made.ratios, missing)
    plot(made, out / "gpu-hot-share.png")


def table(results: Sequence[Result]) -> Table:
    """A row for each way: hits, time, and what crosses the bus for a batch."""
    columns = (
        "hits",
        "ms per batch",
        "over the CPU's",
        "MB of rows",
        "MB in sectors",
        "MB counted",
        "GB/s over the bus",
    )
    made = Table("way", *columns)
    for one in results:
        figures, seconds = one.figures, one.seconds_per_batch
        made.add_row(
            one.side,
            f"{figures['hot_rows'] / figures['rows']:.1%}",
            f"{1e3 * seconds:.3f} ({1e3 * one.fastest:.3f} to {1e3 * one.slowest:.3f})",
            f"{one.over_baseline:.2f}",
            *(f"{figures[name] / 1e6:.2f}" if name in figures else "" for name in MOVED),
            f"{figures['bus_bytes'] / seconds / 1e9:.2f}",
        )
    return made


TIMES = ("seconds_per_batch", "fastest", "slowest")
MOVED = {"bus_bytes": "rows", "sector_bytes": "sectors", "counted_bytes": "counted by the driver"}


def plot(made: Measured, path: Path) -> None:
    """Milliseconds, and megabytes over the bus, against the share of rows on the GPU; what has no tiers as lines."""
    plt = pyplot()
    if plt is None:
        return
    figure, (times, moved) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    by_side = {one.side: one for one in made.results}
    tiers = [by_side[side] for side in made.shares]
    _plot_times(times, by_side, tiers, made.across)
    moved.axhline(by_side[CPU].figures["bus_bytes"] / 1e6, color="C3", linestyle="--", label=CPU)
    for name, label in MOVED.items():
        if all(name in one.figures for one in tiers):
            moved.plot(made.across, [one.figures[name] / 1e6 for one in tiers], marker="o", label=f"tiered, {label}")
    for axes, label in ((times, "ms per batch"), (moved, "MB over the bus per batch")):
        axes.set(xlabel="rows on the GPU, %", ylabel=label)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="x-small")
    figure.suptitle(f"{made.results[0].graph}: features of a batch", fontsize="medium")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _plot_times(axes: Any, by_side: dict[str, Result], tiers: list[Result], across: list[float]) -> None:
    median, least, most = ([1e3 * getattr(one, name) for one in tiers] for name in TIMES)
    axes.plot(across, median, marker="o", label=f"tiered ({ZERO_COPY} at 0)")
    axes.fill_between(across, least, most, alpha=0.2)
    for side, style in ((CPU, "--"), (COPY, ":")):
        axes.axhline(1e3 * by_side[side].seconds_per_batch, color="C3", linestyle=style, label=side)
