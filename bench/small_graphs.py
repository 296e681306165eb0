"""Small batches on graphs of low degree, beside DGL and PyG: operations alone, and passes of loaders."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from cases import DGL, PYG, SPSAMPLE, Case, Side
from graphs import draw_seeds, graph_folder, save
from json_lines import append, read
from machine_facts import machine_facts
from measuring import Peers, measured
from report import Turn, ratios

GRAPHS = ["grid:100", "cnr2000", "musae_facebook", "tolokers"]


class Pair(NamedTuple):
    """One of our sides, and a peer's that does the same."""

    ours: str
    theirs: str
    bulk_size: int


class Slower(NamedTuple):
    """How many times as long as ours a peer's side takes: the median over rounds, the least and the most."""

    pair: Pair
    ours_ms: float
    theirs_ms: float
    median: float
    least: float
    most: float


def small_graphs(
    graph: Annotated[list[str] | None, typer.Option(help="Graph; may be repeated. `grid:SIDE` is made.")] = None,
    batch_size: Annotated[list[int] | None, typer.Option(help="b; may be repeated. All three by default.")] = None,
    bulk_size: Annotated[list[int] | None, typer.Option(help="k; may be repeated. 1, 8 and 64 by default.")] = None,
    batches: Annotated[int, typer.Option(help="Batches of a turn.")] = 64,
    threads: Annotated[int, typer.Option(help="Threads of every peer.")] = 2,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    loaders: Annotated[bool, typer.Option(help="Passes of loaders, too, not operations alone.")] = True,
    dgl_python: Annotated[str | None, typer.Option(help="Interpreter that has DGL.")] = None,
    pyg_python: Annotated[str | None, typer.Option(help="Interpreter that has PyG and pyg-lib.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of small_graphs.jsonl; cells that are there are left out.")] = Path(
        "bench/results"
    ),
) -> None:
    """Small batches on graphs of low degree, against DGL and PyG: how many times as long they take."""
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    pythons = {"dgl_loader": dgl_python, "pyg_loader": pyg_python}
    path, machine = out / "small_graphs.jsonl", machine_facts(threads)
    its_set = {"instruction_set": machine["instruction_set"]}
    known = [one for one in read(path) if one["kind"] == "result" and its_set.items() <= one.items()]
    done = {(one["graph"], one["batch_size"], one["bulk_size"]) for one in known}
    append(path, [{"kind": "machine", **machine}])
    sizes, bulk_sizes = batch_size or [64, 256, 1024], bulk_size or [1, 8, 64]
    for name in graph or GRAPHS:
        cells = {b: [k for k in bulk_sizes if (name, b, k) not in done] for b in sizes}
        missing = {b: several for b, several in cells.items() if several}
        if not missing:
            continue
        with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
            inputs = {**_inputs(name, batches, max(sizes), Path(scratch)), "threads": threads}
            with Peers(pythons, inputs) as peers:
                for size, several in missing.items():
                    case, pairs = case_of(batches, size, several, loaders)
                    turns = measured(peers, case, rounds, {})
                    found = [_slower(pair, turns) for pair in pairs if {pair.ours, pair.theirs} <= turns.keys()]
                    console.print(_table(f"{name}, batches of {size}", found))
                    where = {"kind": "result", **its_set, "graph": name, "batch_size": size}
                    append(path, ({**where, **_figures(one)} for one in found))
                for text in peers.missing:
                    console.print(text, markup=False)
                append(path, ({"kind": "missing", **its_set, "graph": name, "what": text} for text in peers.missing))


def _figures(one: Slower) -> dict[str, Any]:
    return {
        "bulk_size": one.pair.bulk_size,
        "ours": one.pair.ours,
        "theirs": one.pair.theirs,
        **{name: value for name, value in one._asdict().items() if name != "pair"},
    }


def _inputs(graph: str, batches: int, batch_size: int, scratch: Path) -> dict[str, Any]:
    """Where all peers find the graph and the seeds; smaller batches are the first seeds of these."""
    folder = graph_folder(graph, scratch)
    save(scratch / "seeds", seeds=draw_seeds(np.load(folder / "indptr.npy"), batches, batch_size))
    return {"graph": str(folder), "seeds": str(scratch / "seeds" / "seeds.npy")}


def _slower(pair: Pair, turns: dict[str, list[Turn]]) -> Slower:
    ours, theirs = turns[pair.ours], turns[pair.theirs]
    times = [1000 * statistics.median(turn.seconds_per_batch for turn in side) for side in (ours, theirs)]
    over = ratios(theirs, ours)
    return Slower(pair, *times, statistics.median(over), min(over), max(over))


def case_of(batches: int, batch_size: int, bulk_sizes: list[int], loaders: bool = True) -> tuple[Case, list[Pair]]:
    """The sides, which all take turns, and which of them are compared; passes of loaders only where asked for.

    DGL draws a frontier anew in every layer, as the layout "blocks"; PyG each vertex once, as "subgraph".
    """
    own = {"fanouts": [15, 10, 5], "batches": batches, "batch_size": batch_size}
    peers = {
        "blocks": (Side("DGL sampler", DGL, "sample_blocks", own), Side("DGL DataLoader", DGL, "blocks", own)),
        "subgraph": (
            Side("pyg-lib operation", PYG, "pyg_lib_sample", own),
            Side("NeighborLoader", PYG, "neighbor_loader", {**own, "workers": 0}),
        ),
    }
    sides: list[Side] = [side for both in peers.values() for side in list(both)[: 2 if loaders else 1]]
    pairs = []
    for layout, (operation, loader) in peers.items():
        for k in bulk_sizes:
            options = {**own, "bulk_size": k, "sampler": {"layout": layout}}
            made = [
                Side(f"{layout}, CSR, k = {k}", SPSAMPLE, "bulks", options),
                Side(f"{layout}, COO and edge ids, k = {k}", SPSAMPLE, "bulks_to_pyg", options),
                Side(f"{layout}, BulkLoader, k = {k}", SPSAMPLE, _LOADERS[layout], {**options, "edge_ids": True}),
            ]
            beside = (operation, operation, loader)[: None if loaders else 2]
            sides += made[: len(beside)]
            pairs += [Pair(side.name, peer.name, k) for side, peer in zip(made, beside, strict=False)]
    return Case("small-graphs", "small batches", baseline="", sides=tuple(sides), apart=True), pairs


_LOADERS = {"blocks": "loader_edges", "subgraph": "loader_pyg_edges"}


def _table(title: str, found: list[Slower]) -> Table:
    made = Table("spsample", "ms per batch", "peer", "ms per batch", "times as long", "least", "most", title=title)
    for one in found:
        times = (f"{one.median:.2f}", f"{one.least:.2f}", f"{one.most:.2f}")
        made.add_row(one.pair.ours, f"{one.ours_ms:.3f}", one.pair.theirs, f"{one.theirs_ms:.3f}", *times)
    return made
