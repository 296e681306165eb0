"""Bytes that p ranks send and receive by algorithm, replication and bulk size, beside the model."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from figures import pyplot
from graphs import graph_folder
from json_lines import Line, append, read
from machine_facts import machine_facts
from traffic_cells import SAMPLERS, VARIANTS, Cell

WORKER = Path(__file__).with_name("traffic_cells.py")
GRAPHS = ("rmat:18,26", "cnr2000", "ego_twitter")
SAME_ALONE = ("stages-distinct", "stages-split")
"""Variants of the reduction: with c = 1 there is none, and they are `stages`."""
APART = ("status", "set-up", "features", "features requests")
"""Phases that are not counted as sampling."""
KIB, MIB = 1 << 10, 1 << 20
STYLES = {1: "-", 2: "--", 4: ":"}
"""Lines of the plot, by c."""
BASELINES = ("stages", "stages-distinct", "stages-split")


def traffic(
    graph: Annotated[list[str] | None, typer.Option(help="Graphs [rmat:18,26, cnr2000, ego_twitter].")] = None,
    sampler: Annotated[list[str] | None, typer.Option(help="Of GraphSAGE, LADIES norm, ... [all].")] = None,
    k: Annotated[list[int] | None, typer.Option(help="Batches of a bulk [192, 16, 64].")] = None,
    replication: Annotated[list[int] | None, typer.Option(help="c [1, 2, 4].")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="Of oblivious, stages, ..., column, hubs [all].")] = None,
    ranks: Annotated[int, typer.Option(help="p, threads of one process.")] = 16,
    batch_size: Annotated[int, typer.Option(help="b; 0: 1024 or 512, less on small graphs.")] = 0,
    model: Annotated[bool, typer.Option(help="Also what the model says.")] = True,
    record: Annotated[bool, typer.Option(help="Without: the model, table and plot only.")] = True,
    seconds: Annotated[float, typer.Option(help="Of a cell, at most.")] = 3600,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of traffic.jsonl, which is added to, and traffic.png.")] = Path(
        "bench/results"
    ),
) -> None:
    """Bytes of sampling by phase, recorded and modelled. Cells that the results already have are left out."""
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    out.mkdir(parents=True, exist_ok=True)
    path = out / "traffic.jsonl"
    chosen = (graph or GRAPHS, sampler or SAMPLERS, k or (192, 16, 64), replication or (1, 2, 4), variant or VARIANTS)
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        for what, cell in cells(*chosen, ranks, batch_size):
            if (model if what == "modelled" else record) and (what, cell) not in done(path):
                folder = graph_folder(cell.graph, graph_cache or Path(scratch))
                add(path, measured(what, folder, cell, seconds))
    lines = read(path)
    console.print(table(lines))
    plot(lines, out / "traffic.png")


def cells(
    graphs: Iterable[str],
    samplers: Iterable[str],
    batches: Iterable[int],
    replications: Iterable[int],
    variants: Iterable[str],
    ranks: int,
    batch_size: int,
) -> Iterator[tuple[str, Cell]]:
    """What is to be done about which cell; the model takes all variants at once."""
    variants = list(variants)
    for graph, sampler, k, c in itertools.product(graphs, samplers, batches, replications):
        for variant in variants:
            if c > 1 or variant not in SAME_ALONE:
                yield "recorded", Cell(graph, sampler, k, c, variant, ranks, batch_size)
        yield "modelled", Cell(graph, sampler, k, c, "all", ranks, batch_size)


def measured(what: str, folder: Path, cell: Cell, seconds: float) -> Line:
    """The line of a cell; where its process fails, what it said last."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(WORKER), what, str(folder), json.dumps(asdict(cell))]
    try:
        ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"kind": "missing", "of": what, **asdict(cell), "why": f"takes longer than {seconds:g} s"}
    except subprocess.CalledProcessError as error:
        why = (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
        return {"kind": "missing", "of": what, **asdict(cell), "why": why}
    line: Line = json.loads(ran.stdout)
    return line


def add(path: Path, line: Line) -> None:
    """After the others; the machine first."""
    machine = [] if path.exists() else [{"kind": "machine", **machine_facts(1)}]
    append(path, [*machine, line])


def done(path: Path) -> set[tuple[str, Cell]]:
    """What the results have; what is missing is tried again."""
    names = [field.name for field in fields(Cell)]
    lines = (line for line in read(path) if line["kind"] in ("recorded", "modelled"))
    return {(line["kind"], Cell(**{name: line[name] for name in names})) for line in lines}


# -------------------------------------------------------------------------------------------------- the table, the plot


def sampling_bytes(phases: dict[str, dict[str, float]], name: str = "received_mean") -> float:
    """Of all phases of sampling. Maxima of phases may be of different ranks: their sum is an upper bound."""
    return sum(spread[name] for phase, spread in phases.items() if phase not in APART)


def where(line: Line) -> tuple[Any, ...]:
    """What is compared: everything but the variant."""
    return tuple(line[name] for name in ("graph", "sampler", "batches", "replication"))


def by_cell(lines: list[Line], kind: str) -> dict[tuple[Any, ...], dict[str, Line]]:
    """Lines by cell and variant, in order; variants of the reduction where there is none."""
    found: dict[tuple[Any, ...], dict[str, Line]] = {}
    for line in lines:
        if line["kind"] == kind:
            found.setdefault(where(line), {})[line["variant"]] = line
    for cell, variants in found.items():
        if cell[3] == 1 and "stages" in variants:
            variants.update(dict.fromkeys(SAME_ALONE, variants["stages"]))
    graphs, samplers = list(GRAPHS), list(SAMPLERS)

    def place(at: tuple[Any, ...]) -> tuple[Any, ...]:
        return graphs.index(at[0]) if at[0] in graphs else -1, samplers.index(at[1]), at[2:]

    return {at: found[at] for at in sorted(found, key=place)}


def table(lines: list[Line]) -> Table:
    """MiB received per rank in the mean, ratios of `column` to the others, and the model over what was recorded."""
    ratios = (f"column / {name}" for name in BASELINES)
    made = Table("graph", "sampler", "k", "c", *VARIANTS, *ratios, "model / recorded")
    models = by_cell(lines, "modelled")
    for at, variants in by_cell(lines, "recorded").items():
        sizes = {name: sampling_bytes(line["phases"]) for name, line in variants.items()}
        made.add_row(
            *map(str, at),
            *(mib(sizes.get(name)) for name in VARIANTS),
            *(ratio(sizes.get("column"), sizes.get(name)) for name in BASELINES),
            fit(models.get(at, {}).get("all"), variants),
        )
    return made


def of_model(model: Line, variant: str, line: Line) -> dict[str, float]:
    """Ratio of the model to what was recorded, of the mean bytes of each phase that has any."""
    phases = model["variants"].get(variant, {})
    ratios: dict[str, float] = {}
    for phase, spread in line["phases"].items():
        if phases and spread["received_mean"] and phase not in ("status", "set-up"):
            ratios[phase] = phases.get(phase, {"received_mean": 0.0})["received_mean"] / spread["received_mean"]
    return ratios


def fit(model: Line | None, variants: dict[str, Line]) -> str:
    """The model over what was recorded, all phases of sampling together: the least and the most of all variants."""
    if model is None:
        return ""
    recorded = {name: sampling_bytes(line["phases"]) for name, line in variants.items() if name in model["variants"]}
    ratios = [sampling_bytes(model["variants"][name]) / size for name, size in recorded.items() if size >= KIB]
    return f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else ""


def mib(size: float | None) -> str:
    """Three digits, or whole MiB."""
    return "" if size is None else f"{size / MIB:.3g}" if size < 1000 * MIB else f"{size / MIB:,.0f}"


def ratio(one: float | None, other: float | None) -> str:
    """Three decimals, where there are both."""
    return f"{one / other:.3f}" if one is not None and other else ""


def plot(lines: list[Line], path: Path) -> None:
    """Of each graph and sampler a panel: MiB received per rank over k, a line for each variant and c."""
    found = by_cell(lines, "recorded")
    panels = [panel for panel, ks in _bulk_sizes(found).items() if len(ks) > 1] or list(_bulk_sizes(found))
    plt = pyplot() if panels else None
    if plt is None:
        return
    from matplotlib.lines import Line2D

    rows = -(-len(panels) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(10, 3.6 * rows), layout="constrained", squeeze=False)
    for panel, at in itertools.zip_longest(axes.flat, panels):
        if at is None:
            panel.set_axis_off()
            continue
        _panel(panel, {cell[2:]: variants for cell, variants in found.items() if cell[:2] == at})
        panel.set_title(" ".join(at), fontsize="small", loc="left")
    shown = [Line2D([], [], color=f"C{place}", label=name) for place, name in enumerate(VARIANTS)]
    shown += [Line2D([], [], color="black", linestyle=style, label=f"c = {c}") for c, style in STYLES.items()]
    figure.legend(handles=shown, loc="outside lower center", fontsize="x-small", ncols=5)
    figure.suptitle("MiB received per rank in sampling a bulk of k batches, mean of the ranks", fontsize="medium")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _bulk_sizes(found: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], set[int]]:
    """The k of each graph and sampler."""
    sizes: dict[tuple[Any, ...], set[int]] = {}
    for graph, sampler, k, _ in found:
        sizes.setdefault((graph, sampler), set()).add(k)
    return sizes


def _panel(axes: Any, found: dict[tuple[int, int], dict[str, Line]]) -> None:
    for (place, variant), c in itertools.product(enumerate(VARIANTS), STYLES):
        cells = sorted((k, by[variant]) for (k, of), by in found.items() if of == c and variant in by)
        if not cells or (c == 1 and variant in SAME_ALONE):
            continue
        sizes = [sampling_bytes(line["phases"]) / MIB for _, line in cells]
        axes.plot([k for k, _ in cells], sizes, STYLES[c], marker=".", color=f"C{place}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({k for k, _ in found})
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()
    axes.set_xlabel("k", fontsize="x-small")
    axes.set_ylabel("MiB", fontsize="x-small")
