"""Training epochs of one GraphSAGE with spsample, PyG and DGL, as they come and with the same settings of malloc."""

from __future__ import annotations

import json
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from graphs import draw_seeds, graph_folder, named_dataset, save
from machine_facts import machine_facts
from process import Peer, PeerMissingError, PeerProcess

MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1)}
"""Memory that is freed is kept: what `spsample.training.keep_memory` does for spsample."""

CLASSES, DIM = 47, 100


@dataclass(frozen=True)
class Way:
    """A side of the measurement: a peer under options, in an environment."""

    name: str
    peer: Peer
    options: dict[str, Any]
    kept: bool = False


SPSAMPLE = Peer("spsample", "spsample_training")
PYG = Peer("PyG", "pyg_training", "SPSAMPLE_BENCH_PYG_PYTHON")
DGL = Peer("DGL", "dgl_training", "SPSAMPLE_BENCH_DGL_PYTHON")
WAYS = (
    Way("spsample", SPSAMPLE, {"prefetch": 1, "keep": True}),
    Way("spsample, in turn", SPSAMPLE, {"prefetch": 0, "keep": True}),
    Way("spsample, memory not kept", SPSAMPLE, {"prefetch": 1, "keep": False}),
    *(
        Way(f"{peer.title}, {workers} workers{', malloc set' if kept else ''}", peer, {"workers": workers}, kept)
        for peer in (PYG, DGL)
        for kept in (False, True)
        for workers in (0, 2, 4)
    ),
)


@dataclass(frozen=True)
class Figure:
    """One turn of a side."""

    graph: str
    side: str
    hidden: int
    dropout: float
    round: int
    seconds_per_batch: float
    figures: dict[str, float]
    versions: dict[str, str]


def epoch(
    graph: Annotated[str, typer.Option(help="Graph; a data set keeps its features and labels.")] = "rmat:19,10",
    hidden: Annotated[list[int] | None, typer.Option(help="Width; may be repeated.")] = None,
    dropout: float = 0.5,
    side: Annotated[list[str] | None, typer.Option(help="Sides that begin so; all by default.")] = None,
    fanouts: str = "15,10,5",
    batch_size: int = 1024,
    batches: Annotated[int, typer.Option(help="Steps of an epoch.")] = 12,
    epochs: Annotated[int, typer.Option(help="Epochs of a turn.")] = 1,
    test: Annotated[bool, typer.Option(help="Accuracy on the test vertices after each turn.")] = False,
    seed: int = 0,
    rounds: int = 3,
    threads: int = 2,
    dgl_python: Annotated[str | None, typer.Option(help="Interpreter that has DGL.")] = None,
    pyg_python: Annotated[str | None, typer.Option(help="Interpreter that has PyG and pyg-lib.")] = None,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of epoch.jsonl.")] = Path("bench/results"),
) -> None:
    """An epoch of training, features and sampling included: spsample, PyG and DGL in turn."""
    options = {"fanouts": [int(size) for size in fanouts.split(",")], "batch_size": batch_size, "epochs": epochs}
    options |= {"batches": batches, "bulk": batches, "dropout": dropout, "seed": seed, "test": test}
    pythons = {"dgl_training": dgl_python, "pyg_training": pyg_python}
    ways = _chosen(side)
    console, figures = Console(width=140), []
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch, ExitStack() as stack:
        folder = training_folder(graph, graph_cache or Path(scratch))
        seeds = draw_seeds(np.load(folder / "indptr.npy"), batches, batch_size)
        if (folder / "train.npy").exists():
            train = np.load(folder / "train.npy")
            seeds = train[: len(train) // batch_size * batch_size].reshape(-1, batch_size)[:batches]
        save(Path(scratch) / "seeds", seeds=seeds)
        inputs = {"graph": str(folder), "seeds": str(Path(scratch) / "seeds" / "seeds.npy"), "threads": threads}
        for width in hidden or [128, 256]:
            wanted = {**options, "hidden": width}
            sides = [(way, started(way, pythons, inputs, wanted, stack, console)) for way in ways]
            for number in range(-1, rounds):
                for way, process in sides:
                    if process is not None:
                        figures += _turn(way, process, number, (graph, width, dropout))
            stack.close()
    out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(machine_facts(threads)), *(json.dumps(asdict(figure)) for figure in figures)]
    (out / "epoch.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    console.print(table(figures))


def training_folder(graph: str, cache: Path) -> Path:
    """The folder of a graph with features, labels and vertices to test; of an R-MAT they are drawn."""
    folder = cache / f"training_{graph.replace(':', '_').replace(',', '_')}"
    if folder.is_dir():
        return folder
    if graph.startswith("rmat:"):
        plain, rng = graph_folder(graph, cache), np.random.default_rng(0)
        arrays = {name: np.load(plain / f"{name}.npy") for name in ("indptr", "indices")}
        n = len(arrays["indptr"]) - 1
        x, y = rng.standard_normal((n, DIM), dtype=np.float32), rng.integers(0, CLASSES, n)
        save(folder, **arrays, x=x, y=y, test=np.arange(min(n, 1024)))
    else:
        data = named_dataset(graph)
        y, x = np.asarray(data.y, np.int64), np.asarray(data.x, np.float32)
        arrays = {"indptr": data.graph.indptr, "indices": data.graph.indices}
        save(folder, **arrays, x=x, y=y, train=data.train_idx, test=data.test_idx)
    return folder


def _chosen(names: list[str] | None) -> list[Way]:
    """The sides of these names, and for a name that none has those that begin so."""
    exact = {way.name for way in WAYS} & set(names or [])
    starts = tuple(set(names or [""]) - exact)
    return [way for way in WAYS if way.name in exact or (starts and way.name.startswith(starts))]


def started(
    way: Way,
    pythons: dict[str, str | None],
    inputs: dict[str, Any],
    options: dict[str, Any],
    stack: ExitStack,
    console: Console,
) -> PeerProcess | None:
    """The process of a side, ready; None where the peer is missing."""
    python = way.peer.interpreter(pythons)
    try:
        if python is None:
            raise PeerMissingError(way.peer.missing())
        environment = MALLOC if way.kept else None
        process = stack.enter_context(PeerProcess(way.peer, python, inputs["threads"], environment))
    except PeerMissingError as error:
        console.print(str(error), markup=False)
        return None
    process.ask("open", **inputs)
    process.ask("prepare", name=way.name, task="sage", options={**options, **way.options})
    return process


def _turn(way: Way, process: PeerProcess, number: int, place: tuple[str, int, float]) -> list[Figure]:
    """One turn of a side; the first one, numbered below 0, is not kept."""
    answer = process.ask("run", name=way.name)
    graph, hidden, dropout = place
    figures = answer["figures"]
    seconds = answer["seconds"] / figures["batches"]
    figure = Figure(graph, way.name, hidden, dropout, number, seconds, figures, process.versions)
    return [figure] if number >= 0 else []


def table(figures: list[Figure]) -> Table:
    """Medians, and the medians of the rounds' ratios to the first side."""
    made = Table("hidden", "dropout", "side", "ms a step", "over spsample")
    for column in ("faults a step", "peak MiB", "loss", "accuracy"):
        made.add_column(column)
    for hidden in sorted({figure.hidden for figure in figures}):
        of_width = [figure for figure in figures if figure.hidden == hidden]
        names = list(dict.fromkeys(figure.side for figure in of_width))
        first = {figure.round: figure.seconds_per_batch for figure in of_width if figure.side == names[0]}
        for name in names:
            own = [figure for figure in of_width if figure.side == name]
            ratios = [figure.seconds_per_batch / first[figure.round] for figure in own]
            made.add_row(*_row(own, ratios))
    return made


def _row(own: list[Figure], ratios: list[float]) -> list[str]:
    last, median = own[-1], statistics.median
    return [
        str(last.hidden),
        str(last.dropout),
        last.side,
        f"{1e3 * median(figure.seconds_per_batch for figure in own):.1f}",
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{median(figure.figures['faults'] for figure in own):,.0f}",
        f"{max(figure.figures['peak_bytes'] for figure in own) / 2**20:,.0f}",
        f"{last.figures['loss']:.3f}",
        f"{100 * last.figures['accuracy']:.2f} %" if "accuracy" in last.figures else "",
    ]
