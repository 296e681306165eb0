"""Hits of a cache against the number of trainers: batches of the whole graph, and of the store of each part."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from machine_facts import machine_facts
from spsample.data import Dataset, part_dataset, partition_vertices
from spsample.features import score
from traces import cell

TRAINERS = (2, 4, 8)
WHOLE = "whole graph"
METHODS = ("pagraph", "metis-seeds")


@dataclass(frozen=True)
class Hits:
    """Share of the rows that a trainer finds in its cache, in the mean of the trainers.

    With parts a trainer has nothing but the store of its own: scores count the edges of that.
    """

    graph: str
    sampler: str
    trainers: int
    batches_of: str
    score: str
    share: float
    hits: float


def hits_of(data: Dataset, sampler: sp.Sampler, batch_size: int, how: tuple[str, int, int]) -> float:
    """Hits of one trainer on its own data: the name of a score, the rows that it keeps, epochs."""
    name, rows, epochs = how
    graph, seeds = data.graph, data.train_idx
    scores = score(name, graph, seeds, sampler, batch_size)
    kept = np.zeros(graph.num_nodes, np.bool_)
    kept[np.argsort(-scores, kind="stable")[:rows]] = True
    found = wanted = 0
    loader = sp.BulkLoader(graph, seeds, sampler, batch_size=batch_size, random_seed=1)
    for _ in range(epochs):
        for batch in loader:
            found += int(kept[batch.src_nodes].sum())
            wanted += len(batch.src_nodes)
    return found / max(wanted, 1)


def trainer_hits(
    graph: Annotated[list[str] | None, typer.Option(help="A data set, or rmat:SCALE,EDGE_FACTOR.")] = None,
    sampler: Annotated[list[str] | None, typer.Option(help="GraphSAGE, LADIES or FastGCN.")] = None,
    share: Annotated[float, typer.Option(help="Part of all rows that each trainer keeps.")] = 0.1,
    epochs: Annotated[int, typer.Option(help="That are counted.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder of trainer_hits.jsonl.")] = Path("bench/results"),
) -> None:
    """Hits against the number of trainers, whole graph and parts, by PaGraph's score and by the default one."""
    results: list[Hits] = []
    for spec in graph or ("cnr2000", "rmat:16,16"):
        for name in sampler or ("GraphSAGE", "LADIES"):
            traced = cell(spec, name)
            n, hops, none = traced.graph.num_nodes, len(traced.sampler.sizes), np.empty(0, np.int64)
            data = Dataset(spec, traced.graph, None, np.zeros(n, np.int64), traced.seeds, none, none, 0)
            for rule in ("out-degree", "posterior"):
                arguments = traced.sampler, traced.batch_size, (rule, int(share * n), epochs)
                whole = hits_of(data, *arguments)
                for p in TRAINERS:
                    found = {WHOLE: whole}
                    for method in METHODS:
                        parts = partition_vertices(traced.graph, p, method, seeds=traced.seeds, hops=hops)
                        own = (part_dataset(data, parts, p, i, hops=hops)[0] for i in range(p))
                        found[method] = float(np.mean([hits_of(one, *arguments) for one in own]))
                    results += [Hits(spec, name, p, of, rule, share, round(hit, 4)) for of, hit in found.items()]
    out.mkdir(parents=True, exist_ok=True)
    lines = [{"kind": "machine", **machine_facts(1)}, *(asdict(one) for one in results)]
    (out / "trainer_hits.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    Console(width=120).print(table(results))


def table(results: list[Hits]) -> Table:
    """A row for each graph, sampler, score and kind of batches; a column for each number of trainers."""
    shown = Table("graph", "sampler", "score", "batches of", *(f"{p} trainers" for p in TRAINERS))
    for key in dict.fromkeys((one.graph, one.sampler, one.score, one.batches_of) for one in results):
        hits = {one.trainers: one.hits for one in results if (one.graph, one.sampler, one.score, one.batches_of) == key}
        shown.add_row(*key, *(f"{100 * hits[p]:.1f} %" for p in TRAINERS))
    return shown
