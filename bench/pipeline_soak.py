"""Train for a long time with one pipeline: memory must not grow, and nothing may be left behind.

    spsample launch -n 4 --backend gloo bench/pipeline_soak.py --pipeline factored --minutes 20
    spsample launch -n 2 --backend mpi bench/pipeline_soak.py --pipeline cooperative --minutes 20

One round makes a trainer, trains, and closes it; every run must end with the losses of the first one (asynchronous ones
with a finite loss). After each round a rank's anonymous memory (`RssAnon`), its threads, open files and living
communicators are counted. The first tenth of the rounds is left out. The exit status is 1 where a loss is wrong, or a
rank has grown by more than ``--most-growth`` MiB, or has more threads, files or communicators than at the beginning.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import threading
import time
from typing import Annotated, Any

import numpy as np
import typer

import spsample as sp
from soak import anonymous_memory, memory_of
from spsample.comm import Communicator
from spsample.comm.objects import all_gather_object
from spsample.data import planted
from spsample.training import Callback, ModelConfig, TrainConfig, Trainer

SKIPPED = 0.1


class Losses(Callback):
    """Those of all steps."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """Take note."""
        self.losses.append(loss)


@dataclasses.dataclass
class Left:
    """What a rank has after a round."""

    memory: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    threads: list[int] = dataclasses.field(default_factory=list)
    files: list[int] = dataclasses.field(default_factory=list)
    communicators: list[int] = dataclasses.field(default_factory=list)

    def count(self, seconds: float) -> None:
        """After a round."""
        self.memory.append((seconds, anonymous_memory()))
        self.threads.append(threading.active_count())
        self.files.append(len(os.listdir("/proc/self/fd")))
        self.communicators.append(sum(issubclass(type(one), Communicator) for one in gc.get_objects()))

    def facts(self) -> dict[str, Any]:
        """Of the rounds that count: memory in MiB, and the first and last number of the others."""
        first = math.ceil(SKIPPED * len(self.memory))
        counts = {name: getattr(self, name)[first:] for name in ("threads", "files", "communicators")}
        ends = {name: [values[0], values[-1]] for name, values in counts.items()}
        return {"MiB": memory_of(self.memory[first:]), **ends}


def trained(comm: Communicator, data: Any, settings: dict[str, Any]) -> list[float]:
    """The losses of one run."""
    seen = Losses()
    spread = dataclasses.replace(data, graph=sp.ReplicatedGraph(data.graph, comm)) if comm.size > 1 else data
    config = TrainConfig(epochs=3, batch_size=64, bulk_size=8, **settings)
    trainer = Trainer(spread, sp.GraphSAGE([10, 5]), ModelConfig(hidden=32, dropout=0.2), config, [seen])
    trainer.fit()
    trainer.close()
    return seen.losses


def main(
    pipeline: Annotated[str, typer.Option(help="Of spsample train.")],
    minutes: Annotated[float, typer.Option(help="How long.")] = 20.0,
    staleness: Annotated[int | None, typer.Option(help="Of factored.")] = None,
    vertices: Annotated[int, typer.Option(help="Of the planted graph.")] = 4000,
    most_growth: Annotated[float, typer.Option(help="MiB by which a rank may grow.")] = 8.0,
) -> None:
    """Train until the time is over; rank 0 prints a JSON line."""
    comm = sp.init()
    data = planted(vertices)
    settings = {"pipeline": pipeline, **({} if staleness is None else {"staleness": staleness})}
    left, begin, wrong, first = Left(), time.monotonic(), 0, trained(comm, data, settings)
    while comm.broadcast(np.array([time.monotonic() - begin < 60 * minutes]))[0]:
        losses = trained(comm, data, settings)
        wrong += losses != first if staleness is None else not np.isfinite(losses).all()
        gc.collect()
        left.count(time.monotonic() - begin)
    everyone = all_gather_object(comm, (int(wrong), left.facts()))
    more = [
        rank
        for rank, (_, facts) in enumerate(everyone)
        if facts["MiB"].get("growth", 0.0) > most_growth
        or any(facts[name][1] > facts[name][0] for name in ("threads", "files", "communicators"))
    ]
    if comm.rank == 0:
        facts = {"pipeline": pipeline, "staleness": staleness, "backend": comm.name, "ranks": comm.size}
        rounds = {"runs": 1 + len(left.memory), "minutes": round((time.monotonic() - begin) / 60, 1)}
        found = {"wrong": sum(one for one, _ in everyone), "more": more, "ranks_have": [one for _, one in everyone]}
        print(json.dumps({**facts, **rounds, **found}), flush=True)
    comm.close()
    raise typer.Exit(1 if more or any(one for one, _ in everyone) else 0)


if __name__ == "__main__":
    typer.run(main)
