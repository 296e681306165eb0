"""What `spsample plan --ranks --hidden` says of cooperative batches, beside counts of real ones."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cooperative import DIM, FLOAT, HIDDEN, RANKS, count_share, parts_of
from machine_facts import machine_facts
from spsample.planning.cluster import Cluster, network_named, plan_cooperation, sample_pilot
from traces import Cell, cell

GRAPHS = ("cnr2000", "tolokers", "rmat:16,16")
OWNERS = ("hash", "metis-seeds")
COUNTED_SEED = 7
"""The random seed of what is counted: not that of the pilots."""


@dataclass(frozen=True)
class Shares:
    """A rank's rows, edges and received bytes with cooperative batches, and the most edges, over independent ones."""

    rows: float
    edges: float
    bytes: float
    most_edges: float


@dataclass(frozen=True)
class Compared:
    """Shares that were forecast and counted, and how far each number is from its count: 0.01 is 1 % too many."""

    graph: str
    sampler: str
    ranks: int
    owners: str
    forecast: Shares
    counted: Shares
    errors: dict[str, float]
    verdict: str


def cooperative_plan(
    graph: Annotated[list[str], typer.Option(help="Graphs, as of traces.")] = list(GRAPHS),  # noqa: B006
    sampler: Annotated[str, typer.Option(help="GraphSAGE, LADIES or FastGCN.")] = "GraphSAGE",
    ranks: Annotated[list[int], typer.Option(help="Numbers of ranks.")] = list(RANKS),  # noqa: B006
    owners: Annotated[list[str], typer.Option(help="hash, or a method of spsample partition.")] = list(OWNERS),  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Folder for cooperative_plan.jsonl.")] = None,
) -> None:
    """Forecast a step with cooperative and with independent batches, and count one epoch of each."""
    found = [
        compare(name, sampler, whole, p, how)
        for name in graph
        for whole in [cell(name, sampler)]
        for p in ranks
        for how in owners
    ]
    shown = Table("graph", "p", "owners", "rows", "edges", "bytes", "most edges", "largest error", "")
    for one in found:
        both = zip(asdict(one.forecast).values(), asdict(one.counted).values(), strict=True)
        numbers = [f"{forecast:.3g} ({counted:.3g})" for forecast, counted in both]
        worst = max(one.errors, key=lambda name: abs(one.errors[name]))
        shown.add_row(one.graph, str(one.ranks), one.owners, *numbers, f"{one.errors[worst]:+.1%}", worst)
    Console().print(shown, "forecast (counted)")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "cooperative_plan.jsonl").open("w") as lines:
            print(json.dumps({"record": "machine", **machine_facts(1)}), file=lines)
            for one in found:
                print(json.dumps({"record": "compared", **asdict(one)}), file=lines)


def compare(name: str, kind: str, whole: Cell, p: int, how: str) -> Compared:
    """Forecast and count one number of ranks."""
    share = count_share(name, kind, whole, p, how, random_seed=COUNTED_SEED)
    pilot = sample_pilot(
        whole.graph, whole.seeds, whole.sampler, batch_size=whole.batch_size, feature_bytes=DIM * FLOAT
    )
    cluster = Cluster(p, 10**11, network_named("ethernet"), ranks_per_node=1)
    plan = plan_cooperation(pilot, cluster, hidden=HIDDEN, parts=parts_of(whole, p, how))
    alone, shared = plan.independent, plan.cooperative
    features = alone.phases["features"]  # the counts leave out the ids that are asked for
    forecast = Shares(
        shared.rows / alone.rows,
        shared.edges / alone.edges,
        shared.received / features,
        shared.most_edges / alone.edges,
    )
    counted = Shares(share.rows, share.edges, share.bytes, share.largest_edges)
    errors = {
        "independent rows": alone.rows / share.independent_rows - 1,
        "independent edges": alone.edges / share.independent_edges - 1,
        "independent bytes": features / share.independent_bytes - 1,
        "rows": shared.rows / (share.rows * share.independent_rows) - 1,
        "edges": shared.edges / (share.edges * share.independent_edges) - 1,
        "bytes": shared.received / (share.bytes * share.independent_bytes) - 1,
        "most edges": shared.most_edges / (share.largest_edges * share.independent_edges) - 1,
    }
    return Compared(name, kind, p, how, forecast, counted, errors, plan.verdict)
