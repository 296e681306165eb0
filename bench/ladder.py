"""PaGraph's ladder: what a cache, parts of one's own and overlap each spare, step by step.

    spsample launch -n 4 --backend gloo bench/ladder.py --graph cnr2000 --graph rmat:16,16

Every rank is a trainer, and takes a batch of its own in each step. "plain" fetches the rows of features that other
ranks hold, batch by batch; "cache" keeps those of the highest out-degree; "partition" trains on the store of a part,
which holds all rows that its batches can need; "overlap" samples and gathers in threads beside the training. Each with
and without the first aggregation made once for all vertices, for two models and two kinds of sampling. All sides take
turns, epoch by epoch.

References
----------
Z. Lin et al., PaGraph: scaling GNN training on large graphs via computation-aware caching, SoCC 2020.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

import spsample as sp
from graphs import dataset_graph
from machine_facts import machine_facts
from spsample.comm import Communicator, Recorder
from spsample.comm.objects import broadcast_object
from spsample.data import Dataset, partition_vertices, write_part_stores
from spsample.features import CachedFeatures, FeatureStore, PartitionedFeatures, aggregate_features, score
from spsample.training import BlockMaker, ModelConfig, build_model, gradients_for

RUNGS = ("plain", "cache", "partition", "overlap")
MODELS = {"sage": "mean", "gcn": "gcn"}
SAMPLERS = {
    "neighbours": lambda layers: sp.GraphSAGE([10] * layers),
    "layer-wise": lambda layers: sp.LADIES([512] * layers),
}
DIM, CLASSES, BATCH_SIZE, SHARE_OF_SEEDS = 128, 16, 256, 0.1


@dataclass(frozen=True)
class Kind:
    """One side of the comparison."""

    rung: str
    model: str
    sampler: str
    precomputed: bool

    @property
    def layers(self) -> int:
        """That are sampled."""
        return 1 if self.precomputed else 2


@dataclass(frozen=True)
class Result:
    """Of one side: the slowest rank's seconds of an epoch, and what a rank received and found in its cache.

    Attributes
    ----------
    seconds, deviation : float
        Median over epochs, and standard deviation.
    over_plain : float
        Median over rounds of the ratio to "plain" of the same kind in the same round.
    received_mib : float
        In the mean of the ranks, without gradients.
    hits : float
        Share of the rows of all ranks that a cache gave, of those in a rank's own memory too; 0 without one.
    """

    graph: str
    ranks: int
    rung: str
    model: str
    sampler: str
    precomputed: bool
    seconds: float
    deviation: float
    over_plain: float
    received_mib: float
    hits: float


class Side:
    """One kind on one rank."""

    def __init__(self, kind: Kind, data: Dataset, comm: Communicator, budget: int) -> None:
        self.kind, self.comm = kind, comm
        sampler = SAMPLERS[kind.sampler](kind.layers)
        graph = data.graph if sampler.aggregation == "mean" else data.graph.normalized("row")
        features: Any = data.x
        if kind.rung == "cache":
            features = CachedFeatures(features, budget, scores_of(data, features))
        self.loader = sp.BulkLoader(
            graph,
            data.train_idx,
            sampler,
            batch_size=BATCH_SIZE // comm.size,
            bulk_size=32,
            prefetch=int(kind.rung == "overlap"),
            features=features,
        )
        self.blocks = BlockMaker(data.graph, sampler)
        self.labels = torch.from_numpy(np.array(data.y))
        torch.manual_seed(0)
        name = f"precomputed-{kind.model}" if kind.precomputed else kind.model
        model = build_model(features.dim, CLASSES, kind.layers, ModelConfig(name, hidden=64, dropout=0.0))
        self.gradients = gradients_for(model, comm)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    def epoch(self) -> float:
        """Seconds of an epoch."""
        self.comm.barrier()
        start = time.perf_counter()
        steps = int(self.comm.all_reduce(np.array([len(self.loader)]), "max")[0])
        batches = iter(self.loader)
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss, seeds = self._loss(next(batches, None))
            self.gradients.prepare(loss)
            self.gradients.finish(loss, seeds)
            self.optimizer.step()
        for _ in batches:
            pass
        self.comm.barrier()
        return time.perf_counter() - start

    def _loss(self, batch: Any) -> tuple[torch.Tensor, int]:
        if batch is None or len(batch.seeds) == 0:  # a part may have fewer batches
            return sum((p.sum() for p in self.gradients.model.parameters()), torch.zeros(())) * 0.0, 0
        x, blocks = self.blocks.inputs(batch, self.gradients.model)
        logits = self.gradients.model(x, blocks)
        return cross_entropy(logits, self.labels[torch.from_numpy(batch.seeds).long()]), len(batch.seeds)


def scores_of(data: Dataset, features: PartitionedFeatures) -> NDArray[np.float64]:
    """Out-degrees, PaGraph's score; 0 for rows that are in this rank's memory as it is."""
    scores = score("out-degree", data.graph, data.train_idx, sp.GraphSAGE([10, 10]), BATCH_SIZE).copy()
    scores[features.block_vertices()] = 0.0
    return scores


def dataset_of(spec: str) -> Dataset:
    """A graph with random features and labels, and a random tenth of the vertices with in-neighbours to train on."""
    graph, rng = dataset_graph(spec), np.random.default_rng(0)
    n = graph.num_nodes
    wanted = np.flatnonzero(np.diff(graph.indptr))
    ids = rng.permutation(wanted)[: int(SHARE_OF_SEEDS * n)].astype(np.int64)
    cut = len(ids) // 10 * 8
    train, rest = np.sort(ids[:cut]), np.sort(ids[cut:])
    x, y = rng.random((n, DIM), np.float32), rng.integers(0, CLASSES, n)
    return Dataset(spec, graph, x, y, train, rest[::2], rest[1::2], CLASSES)


def sides_of(comm: Communicator, whole: Dataset, folder: Path, share: float) -> Iterator[Side]:
    """All sides; stores of parts are made in the folder."""
    grid, shared = sp.ProcessGrid(comm), sp.ReplicatedGraph(whole.graph, comm)
    parts = partition_vertices(whole.graph, comm.size, "pagraph", seeds=whole.train_idx, hops=2)
    for model, precomputed in itertools.product(MODELS, (False, True)):
        x = aggregate_features(whole.graph, whole.x, MODELS[model]) if precomputed else np.asarray(whole.x)
        data, stores = replace(whole, x=x), folder / f"{model}-{precomputed}"
        budget = int(share * x.nbytes)
        if comm.rank == 0:
            write_part_stores(data, parts, comm.size, stores, hops=1 if precomputed else 2)
        comm.barrier()
        mine = sp.load_dataset(str(stores / f"part-{comm.rank}"))
        mine = replace(mine, x=FeatureStore(np.array(mine.x)))
        spread = replace(data, graph=shared, x=PartitionedFeatures.of(x, grid))
        for sampler, rung in itertools.product(SAMPLERS, RUNGS):
            kind = Kind(rung, model, sampler, precomputed)
            yield Side(kind, spread if rung in ("plain", "cache") else mine, comm, budget)


def received(comm: Recorder) -> float:
    """Bytes so far, without those of gradients, on all ranks in the mean."""
    mine = sum(counts.bytes_received for phase, counts in comm.traffic.phases.items() if phase != "gradients")
    return float(comm.all_reduce(np.array([float(mine)]))[0]) / comm.size


def measured(comm: Recorder, spec: str, sides: list[Side], rounds: int) -> list[Result]:
    """All sides in turn; the first round warms up."""
    times: dict[Kind, list[float]] = {side.kind: [] for side in sides}
    volumes, hits = {}, {}
    for round_, side in itertools.product(range(rounds + 1), sides):
        before = received(comm)
        seconds = float(comm.all_reduce(np.array([side.epoch()]), "max")[0])
        if round_:
            times[side.kind].append(seconds)
            volumes[side.kind] = (received(comm) - before) / 2**20
    for side in sides:
        counts = side.loader.cache_counts
        found = np.zeros(2) if counts is None else np.array([counts.hits, counts.misses], np.float64)
        all_hits, misses = comm.all_reduce(found).tolist()
        hits[side.kind] = all_hits / max(all_hits + misses, 1.0)
        side.loader.close()
    results = []
    for kind, own in times.items():
        plain = times[replace(kind, rung="plain")]
        ratio = statistics.median(one / other for one, other in zip(own, plain, strict=True))
        spread = statistics.stdev(own) if len(own) > 1 else 0.0
        facts = (round(statistics.median(own), 4), round(spread, 4), round(ratio, 3))
        results.append(
            Result(spec, comm.size, *asdict(kind).values(), *facts, round(volumes[kind], 2), round(hits[kind], 3))
        )
    return results


def table(results: list[Result]) -> Table:
    """A row for each model and kind of sampling, a pair of columns for each rung."""
    shown = Table("graph", "model", "sampling", "first aggregation", *RUNGS, "MiB plain, cache", "hits")
    kinds = dict.fromkeys((one.graph, one.model, one.sampler, one.precomputed) for one in results)
    for graph, model, sampler, precomputed in kinds:
        row = {
            one.rung: one
            for one in results
            if (one.graph, one.model, one.sampler, one.precomputed) == (graph, model, sampler, precomputed)
        }
        plain = f"{1e3 * row['plain'].seconds:.0f} ms"
        others = [f"{row[rung].over_plain:.2f}" for rung in RUNGS[1:]]
        volumes = f"{row['plain'].received_mib:.1f}, {row['cache'].received_mib:.1f}"
        made = "once" if precomputed else "each batch"
        shown.add_row(graph, model, sampler, made, plain, *others, volumes, f"{row['cache'].hits:.2f}")
    return shown


def ladder(
    graph: Annotated[list[str] | None, typer.Option(help="A data set, or rmat:SCALE,EDGE_FACTOR.")] = None,
    share: Annotated[float, typer.Option(help="Part of the bytes of all features that a cache gets.")] = 0.2,
    rounds: Annotated[int, typer.Option(help="Epochs of each side after the warm-up.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder of ladder.jsonl.")] = Path("bench/results"),
) -> None:
    """PaGraph's ladder: plain, a cache, parts, overlap, with and without the first aggregation made once."""
    comm = Recorder(sp.init())
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(broadcast_object(comm, lambda: scratch))
        for spec in graph or ("cnr2000", "rmat:16,16"):
            sides = list(sides_of(comm, dataset_of(spec), folder / str(len(results)), share))
            results += measured(comm, spec, sides, rounds)
        comm.barrier()
    if comm.rank == 0:
        out.mkdir(parents=True, exist_ok=True)
        lines = [{"kind": "machine", **machine_facts(1)}, *(asdict(one) for one in results)]
        (out / "ladder.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        Console(width=160).print(table(results))
    comm.close()


if __name__ == "__main__":
    typer.run(ladder)
