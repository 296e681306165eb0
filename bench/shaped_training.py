"""Seconds of an epoch over a slow network: a batch on each rank, or one of all ranks, at equal seeds for a step.

Independent batches are trained in turn with their sampling (sync), and side by side with it (overlap), as cooperative
ones are.

    # on each of four hosts, or network namespaces whose links are shaped (tbf), with one of RANK=0..3:
    RANK=0 WORLD_SIZE=4 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 \\
        python bench/shaped_training.py --graph cnr2000 --link 1gbit

The graph is on every rank; features lie with the owners of the vertices. The ways take turns. Of each run the second
epoch counts, from its beginning to its last step.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import spsample as sp
from ladder import dataset_of
from machine_facts import machine_facts
from spsample.comm import Recorder
from spsample.data import partition_vertices
from spsample.features import PartitionedFeatures
from spsample.training import Callback, ModelConfig, TrainConfig, Trainer

WAYS = ("sync", "overlap", "cooperative")


class StepTimes(Callback):
    """When each epoch began, and its last step ended."""

    def __init__(self) -> None:
        self.begins: list[float] = []
        self.ends: list[float] = []
        self._last = 0.0

    def on_start(self, trainer: Trainer) -> None:
        """The first one begins."""
        self.begins.append(time.perf_counter())

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """Take note."""
        self._last = time.perf_counter()

    def on_epoch(self, trainer: Trainer, record: Any) -> None:
        """Another one begins."""
        self.ends.append(self._last)
        self.begins.append(time.perf_counter())


def seconds_of(data: sp.Dataset, parts: Any, pipeline: str, batch_size: int) -> float:
    """Of the second epoch."""
    times = StepTimes()
    config = TrainConfig(
        epochs=2, batch_size=batch_size, bulk_size=16, pipeline=pipeline, eval_every=99, evaluation="sampled"
    )
    model = ModelConfig(hidden=64, dropout=0.0)
    own = parts if pipeline == "cooperative" else None
    trainer = Trainer(data, sp.GraphSAGE([15, 10]), model, config, [times], parts=own)
    trainer.fit()
    trainer.close()
    return times.ends[1] - times.begins[1]


def main(
    graph: Annotated[str, typer.Option(help="A data set, or rmat:SCALE,EDGE_FACTOR.")] = "cnr2000",
    method: Annotated[str, typer.Option(help="Of the owners: of partition_vertices, or hash.")] = "metis-seeds",
    link: Annotated[str, typer.Option(help="What the links are, for the record.")] = "1gbit",
    batch_size: Annotated[int, typer.Option(help="Seeds of a rank's batch.")] = 256,
    rounds: Annotated[int, typer.Option(help="Runs of each way.")] = 3,
    out: Annotated[Path, typer.Option(help="JSON lines are added here.")] = Path("bench/results/shaped_training.jsonl"),
) -> None:
    """Print and write medians of all ways, and of the ratios of cooperative to each of the others."""
    comm = Recorder(sp.init())
    data = dataset_of(graph)
    n = data.graph.num_nodes
    if method == "hash":
        parts = np.random.default_rng(7).integers(0, comm.size, n)
    else:
        parts = partition_vertices(data.graph, comm.size, method, seeds=data.train_idx)
    features = PartitionedFeatures.of(data.x, sp.ProcessGrid(comm), partition=parts)
    data = dataclasses.replace(data, graph=sp.ReplicatedGraph(data.graph, comm), x=features)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(float(comm.all_reduce(np.array([seconds_of(data, parts, way, batch_size)]), "max")[0]))
    if comm.rank == 0:
        facts = {"graph": graph, "owners": method, "link": link, "ranks": comm.size, "batch_size": batch_size}
        facts |= {way: round(statistics.median(seconds), 4) for way, seconds in found.items()}
        for way in WAYS[:-1]:
            ratios = [one / other for one, other in zip(found["cooperative"], found[way], strict=True)]
            facts[f"to {way}"] = round(statistics.median(ratios), 3)
            facts[f"ratios to {way}"] = [round(one, 3) for one in ratios]
        print(json.dumps(facts), flush=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**facts, "machine": machine_facts(1)}) + "\n")
    comm.close()


if __name__ == "__main__":
    typer.run(main)
