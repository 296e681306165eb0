"""One epoch on a graph that is larger than a rank's share of memory: seconds by phase, and peak memory of each rank.

    spsample convert rmat:24,16 build/large --memory-budget 2GiB
    mpirun -n 4 python bench/large_graph.py build/large --bulk-size 4

Each rank maps its block row and its block of features. Memory is resident memory as the kernel counts it, mapped pages
of the store included, which several ranks of a machine may share.
"""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Annotated, Any

import typer

import spsample as sp
from resident import resident
from spsample.comm.objects import all_gather_object
from spsample.data import Dataset
from spsample.features import FeatureStore
from spsample.planning.cluster import Cluster, Job, plan_cluster
from spsample.planning.cluster.network import network_named
from spsample.planning.cluster.pilot import sample_pilot
from spsample.training import ModelConfig, TrainConfig, Trainer

MIB = 1 << 20
SAMPLER = sp.GraphSAGE([15, 10, 5])
EVALUATED = 1024
"""Validation and test vertices."""


def planned(dataset: Dataset, seeds: Any, grid: tuple[int, int], batch_size: int) -> dict[str, float]:
    """MiB of a rank and k, as `spsample plan` says; the process itself is not in it, nor the labels."""
    pilot = sample_pilot(dataset.graph, seeds, SAMPLER, batch_size=batch_size, feature_bytes=dataset.x[:1].nbytes)
    network = network_named("shared-memory")
    cluster = Cluster(ranks=grid[0], memory_per_rank=1 << 40, network=network, ranks_per_node=grid[0])
    found = next(one for one in plan_cluster(pilot, cluster, Job()).grids if one.shape.replication == grid[1])
    parts = {name: size / MIB for name, size in found.memory.items()}
    return {**parts, "total": sum(parts.values()), "bulk size": found.bulk_size}


def main(
    store: Annotated[str, typer.Argument(help="Of a graph with features and labels.")],
    replication: Annotated[int, typer.Option(help="c")] = 1,
    seeds: Annotated[int, typer.Option(help="Training vertices of the epoch.")] = 20_000,
    batch_size: Annotated[int, typer.Option(help="b")] = 512,
    bulk_size: Annotated[int, typer.Option(help="k, of all ranks; the plan that is printed recommends one.")] = 64,
    algorithm: Annotated[str, typer.Option(help="How rows of other ranks are reached.")] = "column",
) -> None:
    """Train for one epoch; rank 0 prints a line of JSON."""
    comm = sp.init()
    facts: dict[str, Any] = {"started": resident("VmRSS") / MIB}
    grid = sp.ProcessGrid(comm, replication)
    dataset = sp.load_dataset(store)
    facts |= {"vertices": dataset.graph.num_nodes, "entries": dataset.graph.num_edges}
    data = dataclasses.replace(
        dataset,
        graph=sp.PartitionedGraph.open(store, grid, algorithm=algorithm),
        x=FeatureStore.open(store, grid=grid),
        train_idx=dataset.train_idx[:seeds],
        val_idx=dataset.val_idx[:EVALUATED],
        test_idx=dataset.test_idx[:EVALUATED],
    )
    facts["opened"] = resident("VmRSS") / MIB
    config = TrainConfig(epochs=1, batch_size=batch_size, bulk_size=bulk_size, evaluation="sampled", prefetch=1)
    trainer = Trainer(data, SAMPLER, ModelConfig(hidden=64), config)
    begin = time.perf_counter()
    trainer.fit()
    facts |= {"seconds": time.perf_counter() - begin, "by phase": trainer.seconds}
    facts |= {"peak": resident("VmHWM") / MIB, "anonymous": resident("RssAnon") / MIB, "seeds": len(data.train_idx)}
    everyone = all_gather_object(comm, facts)
    if comm.rank == 0:
        plan = planned(dataset, data.train_idx, (comm.size, replication), batch_size)
        print(json.dumps({"ranks": comm.size, "replication": replication, "plan": plan, "by rank": everyone}))
    trainer.close()
    comm.close()


if __name__ == "__main__":
    typer.run(main)
