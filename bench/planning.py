"""Predicted against measured memory of bulks: graphs, samplers and bulk sizes, each in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from graphs import graph_folder
from machine_facts import machine_facts

WORKER = Path(__file__).with_name("planned_bulks.py")
CASES = (
    ("blocks", False),
    ("blocks", True),
    ("subgraph", False),
    ("subgraph", True),
    ("weighted", False),
    ("replaced", False),
    ("whole rows", False),
    ("LADIES norm", False),
    ("LADIES squared", False),
    ("FastGCN", False),
)
LAYER_WISE_SCALE = 4  # smaller batches, and more of them: their layers have few vertices
MIB = 1 << 20


def planning(
    graph: Annotated[list[str] | None, typer.Option(help="GRAPH@BATCH_SIZE@BULK_SIZE [rmat:18,16@1024@32].")] = None,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    threads: Annotated[int, typer.Option(help="Threads.")] = 2,
    repeats: Annotated[int, typer.Option(help="Processes a case, of which the largest peak counts.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder of planning.jsonl.")] = Path("bench/results"),
) -> None:
    """Predicted against measured peak of bulks, for every sampler."""
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        for text in graph or ["rmat:18,16@1024@32"]:
            name, batch_size, bulk_size = text.rsplit("@", 2)
            folder = graph_folder(name, graph_cache or Path(scratch))
            for sampler, edge_ids in CASES:
                scale = LAYER_WISE_SCALE if sampler.startswith(("LADIES", "FastGCN")) else 1
                sizes = {"batch_size": int(batch_size) // scale, "bulk_size": int(bulk_size) * scale}
                options = {**sizes, "edge_ids": edge_ids}
                facts = _most([_measured(folder, sampler, options, threads) for _ in range(repeats)])
                rows.append({"kind": "plan", "graph": name, "sampler": sampler, **options, **facts})
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(threads)}, *rows]
    (out / "planning.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    console.print(table(rows))


def _measured(folder: Path, sampler: str, options: dict[str, Any], threads: int) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, str(WORKER), str(folder), sampler, json.dumps(options)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def _most(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Of processes that were to do the same."""
    return {**measured[0], **{name: max(facts[name] for facts in measured) for name in ("pool", "resident")}}


def table(rows: list[dict[str, Any]]) -> Table:
    """A row for each case; in MiB."""
    columns = (
        "pilots",
        "predicted MiB",
        "kernels hold MiB",
        "resident MiB",
        "predicted / held",
        "predicted / resident",
    )
    made = Table("graph", "sampler", "b", "k", *columns)
    for row in rows:
        sizes = [f"{row[name] / MIB:.0f}" for name in ("predicted", "pool", "resident")]
        ratios = [_over(row["predicted"], row[name]) for name in ("pool", "resident")]
        sampler = row["sampler"] + (" with ids" if row["edge_ids"] else "")
        where = (row["graph"], sampler, str(row["batch_size"]), str(row["bulk_size"]))
        made.add_row(*where, f"{row['pilots']} of {row['of']}", *sizes, *ratios)
    return made


def _over(predicted: float, measured: float) -> str:
    """The ratio, where the bulk took anything that could be measured."""
    return f"{predicted / measured:.2f}" if measured > 0 else "-"
