"""A job of which one rank is killed: `LAUNCHER python killed_rank.py BACKEND [PHASE NUMBER]`.

The job samples with every sampler on a partitioned graph, by two algorithms. Then it trains, on batches of each rank's
own and on cooperative ones. Rank 2 is killed (SIGKILL) where it begins the NUMBER-th call of a PHASE of communication,
or of the computation "backward". Without a phase nobody is killed, and rank 2 prints how many calls it made in each
phase, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from hooked import Hooked

import spsample as sp
from spsample.comm import init
from spsample.data import planted
from spsample.distributed import PartitionedGraph, ProcessGrid

KILLED = 2
BATCHES = {"batch_size": 32, "random_seed": 3}


class Calls:
    """Counts a rank's calls by phase and ends it at one of them."""

    def __init__(self, wanted):
        self.counts = Counter()
        self.wanted = wanted

    def __call__(self, method, phase):
        self.counts[phase] += 1
        if (phase, self.counts[phase]) == self.wanted:
            os.write(2, f"the end at {time.time()}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


def sample(data, grid):
    for algorithm in ("column", "stages"):
        graph = PartitionedGraph.from_graph(data.graph, grid, algorithm=algorithm, replicate_hubs="8KiB")
        for sampler in (
            sp.GraphSAGE([5, 5]),
            sp.LADIES([64, 64]),
            sp.LADIES([64, 64], law="squared_count"),
            sp.FastGCN([64, 64]),
        ):
            sp.bulk_sample(graph, data.train_idx, sampler, **BATCHES)


def train(data, grid, calls):
    from spsample.features import PartitionedFeatures
    from spsample.training import ModelConfig, TrainConfig, Trainer

    graph = PartitionedGraph.from_graph(data.graph, grid)
    data = dataclasses.replace(data, graph=graph, x=PartitionedFeatures.of(data.x, grid))
    for pipeline in ("overlap", "cooperative"):
        config = TrainConfig(epochs=2, batch_size=32, pipeline=pipeline)
        trainer = Trainer(data, sp.GraphSAGE([5, 5]), ModelConfig(hidden=16), config)
        next(iter(trainer.model.parameters())).register_hook(lambda gradient: calls("hook", "backward"))
        trainer.fit()


def main(backend, phase="", number=0):
    plain = init(backend, 300)
    calls = Calls((phase, int(number)) if plain.rank == KILLED else None)
    comm = Hooked(plain, calls)
    data = planted(1500, degree=6, random_seed=2)
    grid = ProcessGrid(comm, 2)
    sample(data, grid)
    train(data, grid, calls)
    if comm.rank == KILLED:
        print(json.dumps(calls.counts), flush=True)
    comm.barrier()
    print(f"rank {comm.rank} has done all", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
