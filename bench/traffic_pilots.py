"""Whether a recorded pilot of a few batches predicts the bytes of a bulk as well as the cost model does.

    python bench/traffic_pilots.py measure build/pilots.jsonl --graph-cache build/graphs       # an hour; goes on
    python bench/traffic_pilots.py tables build/pilots.jsonl docs/benchmarks/traffic.jsonl

What both are compared with is what `traffic.py` recorded of whole bulks. `PREDICTIONS` says what is compared.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from math import log, sqrt
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from graphs import graph_folder
from traffic import GRAPHS, KIB, MIB, SAME_ALONE, by_cell, read, sampling_bytes
from traffic_cells import RANKS, SAMPLERS, VARIANTS
from traffic_page import markdown
from traffic_pilot_cells import BEYOND, PilotCell

WORKER = Path(__file__).with_name("traffic_pilot_cells.py")
FEWER_RANKS = {1: 4, 2: 4, 4: 8}
"""Ranks of a smaller grid with the same c on which a pilot is recorded, by c."""
ON_FEWER_RANKS = ("column", "stages")
TOLERANCE = 0.05

Line = dict[str, Any]
Phases = dict[str, dict[str, float]]
Sizes = dict[float, float]
"""Bytes by batches of a rank."""

app = typer.Typer(help=__doc__)

# --------------------------------------------------------------------------------------- from a pilot's sizes to a bulk


def linear(sizes: Sizes, batches: float) -> float:
    """In proportion to the largest bulk of the pilot that is no larger than what is asked for.

    Examples
    --------
    >>> linear({1: 10.0, 4: 30.0}, 12), linear({1: 10.0, 4: 30.0}, 2)
    (90.0, 20.0)
    """
    nearest = max(m for m in sizes if m <= batches)
    return sizes[nearest] * batches / nearest


def power_law(sizes: Sizes, batches: float) -> float:
    """Through the two largest sizes; the exponent is between 0 and 1.

    Examples
    --------
    >>> power_law({1: 10.0, 4: 20.0}, 16), power_law({1: 10.0, 4: 20.0}, 1)
    (40.0, 10.0)
    """
    if batches in sizes:
        return sizes[batches]
    m, n = sorted(sizes)[-2:]
    if min(sizes[m], sizes[n]) <= 0:
        return linear(sizes, batches)
    exponent: float = min(max(log(sizes[n] / sizes[m]) / log(n / m), 0.0), 1.0)
    grown: float = sizes[n] * (batches / n) ** exponent
    return grown


def saturating(sizes: Sizes, batches: float) -> float:
    """A (1 - q^j) + B j, of sizes m, 2 m and 4 m: some things are new in every batch, the others ever more rarely.

    Examples
    --------
    >>> round(saturating({m: 100 * (1 - 0.8**m) + 3 * m for m in (1, 2, 4)}, 12) - 100 * (1 - 0.8**12) - 36, 6)
    0.0
    >>> round(saturating({1: 5.0, 2: 10.0, 4: 20.0}, 12), 6)
    60.0
    """
    if batches in sizes or len(sizes) < 3:
        return sizes[batches] if batches in sizes else linear(sizes, batches)
    one, two, four = sorted(sizes)[-3:]
    j, lost, later = batches / one, 2 * sizes[one] - sizes[two], 2 * sizes[two] - sizes[four]
    if lost <= 0 or later <= 0:  # as many again, or more
        return linear(sizes, batches)
    q = min(max(sqrt(later / lost) - 1, 0.0), 0.98)
    saturated: float = lost / (1 - q) ** 2
    each = sizes[one] - saturated * (1 - q)
    grown: float = saturated * (1 - q**j) + each * j
    return max(grown, sizes[four])


Extrapolation = Callable[[Sizes, float], float]


def bulk_of(line: Line, k: int, sizes: tuple[tuple[int, str], ...], extrapolation: Extrapolation) -> Phases:
    """Phases of a bulk of k batches over all ranks that are planned for, from some sizes of a recorded pilot.

    A pilot of fewer ranks has fewer block rows: of what is exchanged in a column of the grid, a share 1 - c/p goes to
    other ranks. What a row group puts together does not depend on p.
    """
    found = {m: line["sizes"][str(m)][which] for m, which in sizes if str(m) in line["sizes"]}
    share = remote_share(line["replication"], line["ranks"]) / remote_share(line["replication"], line["pilot_ranks"])
    everywhere = set.intersection(*map(set, found.values()))
    names = sorted({name for name in set().union(*found.values()) if name in everywhere or "features" not in name})

    def one(phase: str, of: str) -> float:
        by_size: Sizes = {m: phases.get(phase, {of: 0.0})[of] for m, phases in found.items()}
        return (1.0 if phase == "reduction" else share) * extrapolation(by_size, k // line["ranks"])

    return {phase: {of: one(phase, of) for of in ("received_mean", "received_max")} for phase in names}


def remote_share(replication: int, ranks: int) -> float:
    """Of block rows that another rank holds."""
    return 1 - replication / ranks


FIRST, BOTH, ALL = ((1, "first"),), ((1, "mean"), (4, "mean")), ((1, "mean"), (2, "mean"), (4, "mean"))
RECORDED: dict[str, tuple[tuple[tuple[int, str], ...], Extrapolation]] = {
    "linear, 1 a rank": (FIRST, linear),
    "linear, 4 a rank": (BOTH, linear),
    "power law, 1 and 2 a rank": (((1, "first"), (2, "first")), power_law),
    "power law, 2 and 4 a rank": (ALL, power_law),
    "saturating, 1, 2 and 4 a rank": (ALL, saturating),
}
"""Recorded pilots: which bulks of it are recorded, and how a larger one follows."""
ON_FEWER = "on fewer ranks, saturating"
MODELS = {"model": "all", "model from 16 batches": "few"}
COUNTED = "model of the bulk itself"
PREDICTIONS = (*RECORDED, ON_FEWER, *MODELS, COUNTED)

# ------------------------------------------------------------------------------------------------------ measurements


def groups(graphs: list[str], samplers: list[str], replications: list[int], variants: list[str]) -> Iterator[PilotCell]:
    """One process each."""
    for graph in graphs:
        for sampler in samplers:
            for c in replications:
                # The cells of docs/traffic.md: what is the same as another variant is not recorded.
                taken = [one for one in variants if c > 1 or one not in SAME_ALONE]
                yield PilotCell(graph, sampler, c, taken)


def measured(what: str, folder: Path, cell: PilotCell, seconds: float) -> Iterator[Line]:
    """The lines of a group; of one that fails, those that it got to."""
    command = [sys.executable, str(WORKER), what, str(folder), json.dumps(asdict(cell))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            text, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
    yield from map(json.loads, text.splitlines())


def key(what: str, line: Line) -> tuple[Any, ...]:
    """Of a line."""
    return (what, *(line[name] for name in ("graph", "sampler", "replication", "pilot_ranks", "variant")))


@app.command()
def measure(
    path: Annotated[Path, typer.Argument(help="JSON lines, which are added to.")],
    graph: Annotated[list[str] | None, typer.Option(help="Graphs [rmat:18,26, cnr2000, ego_twitter].")] = None,
    sampler: Annotated[list[str] | None, typer.Option(help="Of GraphSAGE, LADIES norm, ... [all].")] = None,
    replication: Annotated[list[int] | None, typer.Option(help="c [1, 2, 4].")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="Of oblivious, stages, ..., column, hubs [all].")] = None,
    what: Annotated[list[str] | None, typer.Option(help="recorded, fewer, predicted [all].")] = None,
    seconds: Annotated[float, typer.Option(help="Of a process, at most.")] = 1800,
    graph_cache: Annotated[Path, typer.Option(help="Folder that keeps generated graphs.")] = Path("build/graphs"),
) -> None:
    """Record pilots, and predict from the same batches; what is there is left out."""
    chosen = (graph or [*GRAPHS], sampler or [*SAMPLERS], replication or [1, 2, 4], variant or [*VARIANTS])
    path.parent.mkdir(parents=True, exist_ok=True)
    for kind in what or ("recorded", "fewer", "predicted"):
        for cell in groups(*chosen):
            wanted = of_kind(kind, cell)
            there = {key(line["kind"], line) for line in read(path)}
            wanted.variants[:] = [
                one for one in wanted.variants if key(kind_of(kind), {**asdict(wanted), "variant": one}) not in there
            ]
            if wanted.variants:
                folder = graph_folder(cell.graph, graph_cache)
                with path.open("a", encoding="utf-8") as file:
                    for line in measured(kind_of(kind), folder, wanted, seconds):
                        file.write(json.dumps(line) + "\n")


def kind_of(what: str) -> str:
    """Of the line."""
    return "predicted" if what == "predicted" else "recorded"


def of_kind(what: str, cell: PilotCell) -> PilotCell:
    """The cell, or the smaller grid that stands for it; FastGCN replicates nothing."""
    variants = [
        one for one in cell.variants if cell.sampler != "FastGCN" or one in ("column", "stages")
    ]  # as the page has them
    if what != "fewer":
        return PilotCell(cell.graph, cell.sampler, cell.replication, variants)
    few = [one for one in variants if one in ON_FEWER_RANKS]
    return PilotCell(cell.graph, cell.sampler, cell.replication, few, RANKS, FEWER_RANKS[cell.replication])


# ------------------------------------------------------------------------------------------------------------ tables

At = tuple[str, str, int, int, str]
"""Graph, sampler, k, c, variant."""


def predictions(lines: list[Line], figures: list[Line]) -> dict[At, dict[str, Phases]]:
    """Of each cell and variant that was recorded ("recorded"), what each prediction says of its phases."""
    found: dict[At, dict[str, Phases]] = {}
    counted = by_cell(figures, "modelled")
    for cell, variants in by_cell(figures, "recorded").items():
        for variant, line in variants.items():
            if line["variant"] == variant:  # not another one that is the same here
                found[(*cell, variant)] = {"recorded": line["phases"]}
                if cell in counted:
                    found[(*cell, variant)][COUNTED] = counted[cell]["all"]["variants"][variant]
    for at, by_name in found.items():
        for line in lines:
            if (line["graph"], line["sampler"], line["replication"], line["variant"]) == (*at[:2], *at[3:]):
                by_name.update(of_line(line, at[2]))
    return found


def of_line(line: Line, k: int) -> dict[str, Phases]:
    """What a line says of a bulk."""
    if line["kind"] == "predicted":
        named = {name: line["pilots"][which] for name, which in MODELS.items() if which in line["pilots"]}
        return {name: one["bulks"][str(k)] for name, one in named.items()}
    if line["pilot_ranks"] < line["ranks"]:
        return {ON_FEWER: bulk_of(line, k, ALL, saturating)}
    return {name: bulk_of(line, k, *how) for name, how in RECORDED.items()}


def error(one: dict[str, Phases], name: str, of: str = "received_mean") -> float | None:
    """All phases of sampling together: how much more than recorded; None where either is missing or next to nothing."""
    recorded = sampling_bytes(one["recorded"], of)
    if name not in one or sampling_bytes(one["recorded"]) < KIB:
        return None
    return sampling_bytes(one[name], of) / recorded - 1


def summary_rows(found: dict[At, dict[str, Phases]], of: str) -> Iterator[list[str]]:
    """By prediction and k: how many cells are within the tolerance, and how far the others are."""
    sizes = sorted({at[2] for at in found})
    yield ["prediction", *(f"k = {k}" for k in sizes), "all", "median", "a 20th is above", "least", "most"]
    for name in PREDICTIONS:
        errors = {at: error(one, name, of) for at, one in found.items()}
        known = {at: one for at, one in errors.items() if one is not None}
        if known:
            values = np.array([*known.values()])
            by_size = [within([one for at, one in known.items() if at[2] == k]) for k in sizes]
            spread = np.quantile(np.abs(values), [0.5, 0.95])
            yield [name, *by_size, within([*values]), *map(percent, (*spread, values.min(), values.max()))]


def graph_rows(found: dict[At, dict[str, Phases]], k: int) -> Iterator[list[str]]:
    """Of the bulks of k batches, and of all: how many are within the tolerance, by graph and of the larger bulks.

    "Nearest" takes for each bulk the recorded pilot that happens to be nearest.
    """
    yield ["bulks", *PREDICTIONS, "nearest recorded", "its largest error"]
    cells = {at: one for at, one in found.items() if error(one, COUNTED) is not None}
    chosen: dict[str, list[dict[str, Phases]]] = {
        f"{graph}, k = {k}": [one for at, one in cells.items() if (at[0], at[2]) == (graph, k)] for graph in GRAPHS
    }
    chosen[f"all, k = {k}"] = [one for at, one in cells.items() if at[2] == k]
    chosen["of a MiB"] = [one for one in cells.values() if sampling_bytes(one["recorded"]) >= MIB]
    for name, ones in chosen.items():
        errors = {of: [e for one in ones if (e := error(one, of)) is not None] for of in PREDICTIONS}
        nearest = [min((e for of in RECORDED if (e := error(one, of)) is not None), key=abs) for one in ones]
        yield [name, *map(within, errors.values()), within(nearest), percent(max(map(abs, nearest)))]


def within(errors: list[float]) -> str:
    """How many are within the tolerance, of how many."""
    return f"{sum(abs(one) <= TOLERANCE for one in errors)} of {len(errors)}"


def percent(part: float) -> str:
    """With one decimal; far too much as how many times."""
    return f"{100 * part:.1f} %" if part < 9 else f"{part + 1:.0f} times"


def variant_rows(found: dict[At, dict[str, Phases]], k: int) -> Iterator[list[str]]:
    """Of the bulks of k batches, the largest error by sampler and variant; in brackets how many are too far."""
    yield ["sampler", "variant", "cells", *PREDICTIONS]
    for sampler in SAMPLERS:
        for variant in VARIANTS:
            cells = [one for at, one in found.items() if (at[1], at[2], at[4]) == (sampler, k, variant)]
            errors = {name: [e for one in cells if (e := error(one, name)) is not None] for name in PREDICTIONS}
            if any(errors.values()):
                yield [sampler, variant, str(max(map(len, errors.values()))), *map(farthest, errors.values())]


def farthest(errors: list[float]) -> str:
    """The largest error, and how many are beyond the tolerance."""
    if not errors:
        return ""
    beyond = sum(abs(one) > TOLERANCE for one in errors)
    return percent(max(errors, key=abs)) + (f" ({beyond})" if beyond else "")


def phase_rows(found: dict[At, dict[str, Phases]], k: int) -> Iterator[list[str]]:
    """Of the bulks of k batches by phase, the share of the cells with a KiB of it or more that are within tolerance."""
    yield ["phase", *PREDICTIONS]
    phases = sorted({phase for one in found.values() for phase in one["recorded"]} - {"status", "set-up"})
    for phase in phases:
        row = []
        for name in PREDICTIONS:
            pairs = [
                (one[name].get(phase, {"received_mean": 0.0})["received_mean"], one["recorded"][phase]["received_mean"])
                for at, one in found.items()
                if at[2] == k and name in one and phase in one["recorded"]
                if phase in one[name] or "features" not in phase  # only the smallest bulks of a pilot fetch any
            ]
            row.append(farthest_of([said / was - 1 for said, was in pairs if was >= KIB]))
        if any(row):
            yield [phase, *row]


def farthest_of(errors: list[float]) -> str:
    """How many are within the tolerance, and the largest error."""
    return f"{within(errors)}, {percent(max(errors, key=abs))}" if errors else ""


def beyond_rows(found: dict[At, dict[str, Phases]], names: tuple[str, ...]) -> Iterator[list[str]]:
    """Cells in which one of some predictions is too far."""
    yield ["graph", "sampler", "k", "c", "variant", "KiB recorded", *names]
    for at, one in found.items():
        errors = [error(one, name) for name in names]
        if any(abs(e) > TOLERANCE for e in errors if e is not None):
            size = f"{sampling_bytes(one['recorded']) / KIB:,.0f}"
            yield [*map(str, at), size, *("" if e is None else percent(e) for e in errors)]


@app.command()
def tables(
    pilots: Annotated[list[Path], typer.Argument(help="Lines of `measure`, and last traffic.jsonl.")],
    k: Annotated[int, typer.Option(help="Of the tables by variant and by phase.")] = 192,
) -> None:
    """Print how far each prediction is from what was recorded, in Markdown."""
    *measured_here, figures = pilots
    lines = [line for path in measured_here for line in read(path)]
    found = predictions(lines, read(figures))
    found = {at: one for at, one in found.items() if len(one) > 2}
    for rows in (
        summary_rows(found, "received_mean"),
        summary_rows(found, "received_max"),
        graph_rows(found, k),
        variant_rows(found, k),
        phase_rows(found, k),
        beyond_rows(found, ("saturating, 1, 2 and 4 a rank", "model")),
    ):
        print(markdown(rows), end="\n\n")


@app.command()
def distinct(
    graph_cache: Annotated[Path, typer.Option(help="Folder that keeps generated graphs.")] = Path("build/graphs"),
    seconds: Annotated[float, typer.Option(help="Of a process, at most.")] = 1800,
) -> None:
    """Print how far the mixture fit and two curves are from the distinct rows of more batches, in Markdown."""
    lines = [
        line
        for graph in GRAPHS
        for sampler in ("GraphSAGE", "LADIES norm", "LADIES squared")
        for line in measured("distinct", graph_folder(graph, graph_cache), PilotCell(graph, sampler, 1, []), seconds)
    ]
    print(markdown(distinct_rows(lines)))


def distinct_rows(lines: list[Line]) -> Iterator[list[str]]:
    """By the number of pilots and how often as many batches are meant."""
    yield ["pilots", "batches", "cases", "mixture", "saturating", "power law"]
    found: dict[tuple[int, str], list[tuple[float, ...]]] = {}
    for line in lines:
        least = min(map(int, line["sizes"]))
        sizes: Sizes = {int(m) // least: size for m, size in line["sizes"].items()}
        for j, (mixture, counted) in line["beyond"].items():
            curves = (extrapolation(sizes, int(j) / least) for extrapolation in (saturating, power_law))
            ratios = [one / counted - 1 for one in (mixture, *curves)]
            named = j if int(j) in BEYOND else "all: 158 to 192"
            found.setdefault((line["few"], named), []).append(tuple(ratios))
    for (few, j), errors in found.items():
        columns = zip(*errors, strict=True)
        yield [str(few), j, str(len(errors)), *(farthest_of([*column]) for column in columns)]


@app.command()
def times(
    rounds: Annotated[int, typer.Option(help="In which both ways take turns.")] = 3,
    replication: Annotated[int, typer.Option(help="c.")] = 2,
    variant: Annotated[str, typer.Option(help="Of the exchanges.")] = "column",
    graph_cache: Annotated[Path, typer.Option(help="Folder that keeps generated graphs.")] = Path("build/graphs"),
) -> None:
    """Print the seconds of a recorded pilot and of the model's, medians of the rounds, in Markdown."""
    rows = [["graph", "sampler", "1 a rank", "4 a rank", "1, 2 and 4 a rank", "model", "1, 2 and 4 over model"]]
    for graph, sampler in itertools.product(GRAPHS, ("GraphSAGE", "LADIES norm", "LADIES squared")):
        folder, cell = graph_folder(graph, graph_cache), PilotCell(graph, sampler, replication, [variant])
        taken = np.array([seconds_of_round(folder, cell) for _ in range(rounds)])
        ratio = np.median(taken[:, 2] / taken[:, 3])
        rows.append([graph, sampler, *(f"{one:.2f}" for one in (*np.median(taken, axis=0), ratio))])
    print(markdown(rows))


def seconds_of_round(folder: Path, cell: PilotCell) -> list[float]:
    """Of the ranks' set-up and a bulk of 1 a rank, of 4, and of all bulks; of the model's pilots and predictions."""
    (ranks,) = measured("recorded", folder, cell, 600)
    (model,) = measured("predicted", folder, cell, 600)
    sizes, predicted = ranks["sizes"], model["pilots"]["all"]
    pilots = (
        sizes["1"]["seconds"] / sizes["1"]["bulks"],
        sizes["4"]["seconds"],
        sum(s["seconds"] for s in sizes.values()),
    )
    counts = model["took"]["all"]["sampling"] + predicted["tally_seconds"] + predicted["seconds"]
    return [*(ranks["set_up_seconds"] + one for one in pilots), counts]


if __name__ == "__main__":
    app()
