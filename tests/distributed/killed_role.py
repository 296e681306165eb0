"""A factored training of which one rank is killed: `LAUNCHER python killed_role.py BACKEND [RANK PHASE NUMBER]`.

The last rank samples, the others train: in steps that all take together, then asynchronously. A rank is killed
(SIGKILL) where it begins the NUMBER-th call of a PHASE of communication, or of the computation "backward". Without a
phase nobody is killed, and each rank prints how many calls it made in each phase, as JSON.
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
from spsample.training import ModelConfig, TrainConfig, Trainer


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


def main(backend, rank="0", phase="", number="0"):
    plain = init(backend, 20)
    calls = Calls((phase, int(number)) if plain.rank == int(rank) else None)
    comm = Hooked(plain, calls)
    data = planted(1500, degree=6, random_seed=2)
    data = dataclasses.replace(data, graph=sp.ReplicatedGraph(data.graph, comm))
    for staleness in (None, 2):
        settings = {"epochs": 2, "batch_size": 32, "sampler_ranks": 1, "staleness": staleness}
        config = TrainConfig(pipeline="factored", **settings)
        trainer = Trainer(data, sp.GraphSAGE([5, 5]), ModelConfig(hidden=16), config)
        weights = next(iter(trainer.steps.gradients.model.parameters()))
        weights.register_hook(lambda gradient: calls("hook", "backward"))
        trainer.fit()
        trainer.close()
    print(f"rank {comm.rank}: {json.dumps(calls.counts)}", flush=True)
    comm.barrier()
    print(f"rank {comm.rank} has done all", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
