"""A job of which one rank is killed: `LAUNCHER python killed_rank.py BACKEND JOB [--folder F] [RANK PHASE NUMBER]`.

JOB is "sampling", with every sampler on a partitioned graph by two algorithms, or a training: "sync", "overlap" and
"cooperative" on a partitioned graph, "factored" and "asynchronous" with the last rank as the sampler. A rank is killed
(SIGKILL) where it begins the NUMBER-th call of a PHASE of communication, or of the computation "backward". Without a
phase nobody is killed, and each rank prints how many calls it made in each phase, as JSON.

With a folder a training keeps a checkpoint there after each step, and goes on with the one there is. At the end rank 0
prints what came of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from hooked import Calls, Hooked

import spsample as sp
from spsample.comm import init
from spsample.data import planted
from spsample.distributed import PartitionedGraph, ProcessGrid

BATCHES = {"batch_size": 32, "random_seed": 3}


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


def trainer_of(job, data, comm, callbacks):
    from spsample.features import PartitionedFeatures
    from spsample.training import ModelConfig, TrainConfig, Trainer

    if job in ("factored", "asynchronous"):
        data = dataclasses.replace(data, graph=sp.ReplicatedGraph(data.graph, comm))
        how = {"pipeline": "factored", "sampler_ranks": 1, "staleness": None if job == "factored" else 2}
    else:
        grid = ProcessGrid(comm, 2)
        graph = PartitionedGraph.from_graph(data.graph, grid)
        data = dataclasses.replace(data, graph=graph, x=PartitionedFeatures.of(data.x, grid))
        how = {"pipeline": job}
    config = TrainConfig(epochs=2, batch_size=32, **how)
    return Trainer(data, sp.GraphSAGE([5, 5]), ModelConfig(hidden=16), config, callbacks)


def train(job, data, comm, calls, folder):
    from spsample.training import Callback, read_checkpoint, write_checkpoint

    class AfterEachStep(Callback):
        def on_step(self, trainer, loss):
            if comm.rank == 0:
                write_checkpoint(folder / "checkpoint.pt", trainer.state_dict())

    trainer = trainer_of(job, data, comm, [] if folder is None else [AfterEachStep()])
    next(iter(trainer.pipeline.gradients.model.parameters())).register_hook(lambda gradient: calls("hook", "backward"))
    if folder is not None and (folder / "checkpoint.pt").exists():
        trainer.load_state_dict(read_checkpoint(folder / "checkpoint.pt"))
    history = [[record.loss.hex(), record.val] for record in trainer.fit().history]
    weights = hashlib.sha256(b"".join(one.numpy().tobytes() for one in trainer.model.state_dict().values()))
    trainer.close()
    if comm.rank == 0:
        print(f"trained: {json.dumps([history, weights.hexdigest()])}", flush=True)


def main(backend, job, *where):
    folder = None
    if where[:1] == ("--folder",):
        folder, where = Path(where[1]), where[2:]
    rank, phase, number = where or ("0", "", "0")
    plain = init(backend, 300)
    calls = Calls((phase, int(number)) if plain.rank == int(rank) else None)
    comm = Hooked(plain, calls)
    data = planted(1500, degree=6, random_seed=2)
    if job == "sampling":
        sample(data, ProcessGrid(comm, 2))
    else:
        train(job, data, comm, calls, folder)
    print(f"rank {comm.rank}: {json.dumps(calls.counts)}", flush=True)
    comm.barrier()
    print(f"rank {comm.rank} has done all", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
