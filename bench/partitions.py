"""Partitions by every method: how even, what parts hold twice, how long they take, and which bytes they save.

Train vertices are those of the data set, or a random tenth of the vertices that have in-neighbours, as in all traced
runs. Methods take turns; the first round is a discarded warm-up. From the data set of each part batches are sampled and
compared with the whole graph: each row that is drawn from must be the whole graph's.

Bytes are counted for two kinds of batches: seeds drawn from all train vertices, as training does, and each rank's
batches drawn from those of its own block row. Ranks are threads of one process; docs/partitions.md has the results.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from graphs import named_dataset
from machine_facts import machine_facts
from spsample.comm import Communicator, Recorder, run_threads
from spsample.data import Dataset, part_dataset, partition_quality, partition_vertices
from spsample.data.partition import METHODS
from spsample.features import PartitionedFeatures
from traces import cell
from traffic import mib
from traffic_cells import FEATURES

GRAPHS = ("cnr2000", "musae_facebook", "tolokers")
FANOUTS = (15, 10, 5)
METIS = "metis"


@dataclass(frozen=True)
class Quality:
    """One partition: what it is like, the median of its CPU seconds, and of those over METIS's in the same round."""

    graph: str
    parts: int
    hops: int
    method: str
    train_balance: float
    largest: float
    cut: float
    replication: float
    edges_kept: float
    seconds: float
    least_seconds: float
    most_seconds: float
    over_metis: float


@dataclass(frozen=True)
class Sampled:
    """What was drawn from the parts: rows and entries, and those of them that are not as in the whole graph."""

    graph: str
    parts: int
    hops: int
    method: str
    rows: int
    entries: int
    short_rows: int
    foreign_entries: int
    missing_sources: int


@dataclass(frozen=True)
class Moved:
    """MiB that a rank receives, mean of the ranks."""

    graph: str
    ranks: int
    method: str
    seeds: str
    sampling: float
    features: float


def trained(name: str) -> Dataset:
    """A data set with train vertices."""
    found = named_dataset(name)
    return found if len(found.train_idx) else replace(found, train_idx=cell(found.graph, "GraphSAGE").seeds)


def measured(name: str, data: Dataset, parts: int, hops: int, methods: list[str], rounds: int) -> list[Quality]:
    """Every method in turn."""
    graph, train = data.graph, data.train_idx
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    made = {}
    for _ in range(rounds + 1):
        for method in methods:
            start = time.process_time()
            made[method] = partition_vertices(graph, parts, method, seeds=train, hops=hops)
            seconds[method].append(time.process_time() - start)
    results = []
    for method in methods:
        taken, base = (one[1:] or one for one in (seconds[method], seconds.get(METIS, seconds[method])))
        quality = partition_quality(graph, made[method], parts, seeds=train, hops=hops)
        figures = quality._asdict()
        del figures["empty"]
        over = statistics.median(one / other for one, other in zip(taken, base, strict=True))
        times = (statistics.median(taken), min(taken), max(taken), over)
        results.append(
            Quality(
                *(name, parts, hops, method),
                **figures,
                **dict(zip(("seconds", "least_seconds", "most_seconds", "over_metis"), times, strict=True)),
            )
        )
    return results


def sampled(name: str, data: Dataset, count: int, hops: int, method: str, batches: int, batch_size: int) -> Sampled:
    """Draw from every part with fanouts and with all neighbours, and look the rows up in the whole graph."""
    parts = partition_vertices(data.graph, count, method, seeds=data.train_idx, hops=hops)
    totals = np.zeros(5, np.int64)
    for part in range(count):
        one, ids = part_dataset(data, parts, count, part, hops=hops)
        for fanouts in (FANOUTS[:hops], (-1,) * hops):
            sampler = sp.GraphSAGE(list(fanouts))
            seeds = one.train_idx[: batches * batch_size]
            here = sp.bulk_sample(one.graph, seeds, sampler, batch_size=batch_size, edge_ids=True)
            there = sp.bulk_sample(data.graph, ids[seeds], sampler, batch_size=batch_size) if -1 in fanouts else here
            for mine, theirs in zip(here, there, strict=True):
                totals[:4] += compared(data.graph, mine, ids, fanouts)
                if -1 in fanouts:
                    totals[4] += len(np.setxor1d(ids[mine.src_nodes], theirs.src_nodes))
    return Sampled(name, count, hops, method, *totals.tolist())


def compared(graph: sp.Graph, minibatch: Any, ids: NDArray[np.int64], fanouts: tuple[int, ...]) -> NDArray[np.int64]:
    """Rows, entries, rows with fewer entries than the whole graph gives, entries that the whole graph has not."""
    totals = np.zeros(4, np.int64)
    for layer, fanout in zip(minibatch.layers, reversed(fanouts), strict=True):
        targets, drawn = ids[layer.dst_nodes], np.diff(layer.adj.indptr)
        degrees = graph.indptr[targets + 1] - graph.indptr[targets]
        wanted = degrees if fanout < 0 else np.minimum(degrees, fanout)
        row = np.repeat(targets, drawn)
        edges = layer.edge_ids
        is_there = (graph.indptr[row] <= edges) & (edges < graph.indptr[row + 1])
        is_there &= graph.indices[edges] == ids[layer.src_nodes][layer.adj.indices]
        totals += len(targets), len(edges), np.count_nonzero(drawn != wanted), np.count_nonzero(~is_there)
    return totals


def seeds_from_anywhere(trains: list[NDArray[np.int64]], steps: int, batch_size: int) -> NDArray[np.int64]:
    """Batches in the order of a call, each of train vertices of any part."""
    return np.random.default_rng(1).choice(np.concatenate(trains), len(trains) * steps * batch_size)


def seeds_from_own_block(trains: list[NDArray[np.int64]], steps: int, batch_size: int) -> NDArray[np.int64]:
    """Batch t goes to rank t mod p; here all its seeds are train vertices of that rank's part."""
    rng = np.random.default_rng(1)
    return np.concatenate([rng.choice(trains[t % len(trains)], batch_size) for t in range(len(trains) * steps)])


SEEDS = {"any": seeds_from_anywhere, "own block": seeds_from_own_block}


def moved(graph: sp.Graph, parts: NDArray[Any], seeds: NDArray[np.int64], ranks: int, b: int) -> tuple[float, float]:
    """Bytes that a rank receives in sampling and for features, mean of the ranks."""
    x = np.zeros((graph.num_nodes, FEATURES), np.float32)

    def body(comm: Communicator) -> tuple[int, int]:
        recorder = Recorder(comm)
        grid = sp.ProcessGrid(recorder)
        shared = sp.PartitionedGraph.from_graph(graph, grid, partition=parts)
        features = PartitionedFeatures.of(x, grid, partition=parts)
        recorder.traffic.clear()
        bulk = sp.bulk_sample(shared, seeds, sp.GraphSAGE(list(FANOUTS)), batch_size=b)
        sampling = recorder.traffic.total().bytes_received
        for minibatch in bulk:
            features.gather(minibatch.src_nodes)
        return sampling, recorder.traffic.total().bytes_received - sampling

    everyone = np.array(run_threads(ranks, body))
    return float(everyone[:, 0].mean()), float(everyone[:, 1].mean())


def bytes_of(name: str, data: Dataset, methods: list[str], ranks: int, steps: int, batch_size: int) -> list[Moved]:
    """Every method with both kinds of batches."""
    results = []
    for method, (which, seeds_of) in product(methods, SEEDS.items()):
        parts = partition_vertices(data.graph, ranks, method, seeds=data.train_idx, hops=len(FANOUTS))
        trains = [data.train_idx[parts[data.train_idx] == part] for part in range(ranks)]
        seeds = seeds_of(trains, steps, batch_size)
        results.append(Moved(name, ranks, method, which, *moved(data.graph, parts, seeds, ranks, batch_size)))
    return results


def quality_table(results: list[Quality]) -> Table:
    """A row for each graph, hops and method."""
    heads = ("graph", "hops", "method", "train", "rows and entries", "cut", "replication", "edges kept")
    shown = Table(*heads, "CPU seconds", "over METIS")
    for one in results:
        shown.add_row(
            *(one.graph, str(one.hops), one.method, f"{one.train_balance:.4f}", f"{one.largest:.3f}", f"{one.cut:.1%}"),
            *(f"{one.replication:.3f}", f"{one.edges_kept:.1%}"),
            *(f"{one.seconds:.3f} ({one.least_seconds:.3f} to {one.most_seconds:.3f})", f"{one.over_metis:.2f}"),
        )
    return shown


def sampled_table(results: list[Sampled]) -> Table:
    """A row for each graph and hops."""
    shown = Table("graph", "hops", "method", "rows drawn", "entries", "short rows", "foreign", "sources missing")
    for one in results:
        counts = (one.rows, one.entries, one.short_rows, one.foreign_entries, one.missing_sources)
        shown.add_row(one.graph, str(one.hops), one.method, *(f"{count:,}" for count in counts))
    return shown


def moved_table(results: list[Moved]) -> Table:
    """A row for each graph, method and kind of batches."""
    shown = Table("graph", "ranks", "method", "seeds", "sampling MiB", "features MiB")
    for one in results:
        shown.add_row(one.graph, str(one.ranks), one.method, one.seeds, mib(one.sampling), mib(one.features))
    return shown


def partitions(
    graph: Annotated[list[str] | None, typer.Option(help=f"Or rmat:SCALE,EDGE_FACTOR. [{' '.join(GRAPHS)}]")] = None,
    method: Annotated[list[str] | None, typer.Option(help="May be repeated. [all]")] = None,
    parts: Annotated[int, typer.Option(help="Parts that are measured and sampled from.")] = 4,
    hops: Annotated[list[int] | None, typer.Option(help="Up to 3; may be repeated. [2 3]")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 3,
    ranks: Annotated[int, typer.Option(help="p of the bytes, with c = 1; 0: none are counted.")] = 8,
    steps: Annotated[int, typer.Option(help="Batches of each rank, and of each part.")] = 4,
    batch_size: Annotated[int, typer.Option(help="b")] = 256,
    out: Annotated[Path, typer.Option(help="Folder of partitions.jsonl.")] = Path("bench/results"),
) -> None:
    """Partitions by every method: balance, replication, seconds beside METIS, sampling that stays within, bytes."""
    methods = method or list(METHODS)
    qualities, draws, bytes_moved = [], [], []
    for name in graph or GRAPHS:
        data = trained(name)
        for far in hops or (2, 3):
            qualities += measured(name, data, parts, far, methods, rounds)
            draws += [sampled(name, data, parts, far, one, steps, batch_size) for one in methods]
        if ranks:
            bytes_moved += bytes_of(name, data, methods, ranks, steps, batch_size)
    out.mkdir(parents=True, exist_ok=True)
    records = [
        {"kind": "machine", **machine_facts(1)},
        *({"kind": "quality", **asdict(one)} for one in qualities),
        *({"kind": "sampled", **asdict(one)} for one in draws),
        *({"kind": "bytes", **asdict(one)} for one in bytes_moved),
    ]
    (out / "partitions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    console = Console(width=140)
    for table in (quality_table(qualities), sampled_table(draws), moved_table(bytes_moved)):
        console.print(table)
    if any(one.short_rows or one.foreign_entries or one.missing_sources for one in draws):
        raise SystemExit("sampling has left a part")


if __name__ == "__main__":
    typer.run(partitions)
