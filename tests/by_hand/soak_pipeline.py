"""Train for a long time with one pipeline: memory must not grow, and nothing may be left behind.

    spsample launch -n 4 --backend gloo tests/by_hand/soak_pipeline.py --pipeline factored --minutes 20
    spsample launch -n 2 --backend mpi tests/by_hand/soak_pipeline.py --pipeline cooperative --minutes 20

One round makes a trainer, trains, and closes it; every run must end with the losses of the first one (asynchronous ones
with finite losses). After each round a rank's anonymous memory, its threads, open files and living communicators are
counted. The first tenth of the rounds is left out. The exit status is 1 where a loss is wrong, or a rank has grown by
more than ``--most-growth`` MiB, or has more threads, files or communicators than at the beginning. docs/pipelines.md
has twenty minutes of each.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from held_memory import anonymous_memory, growth

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "distributed"))

from training_cases import Seen

import spsample as sp
from spsample.comm import Communicator, all_gather_object
from spsample.data import planted
from spsample.training import ModelConfig, TrainConfig, Trainer


def counts():
    """Of what a rank has: none of it may become more."""
    return {
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
        "communicators": sum(issubclass(type(one), Communicator) for one in gc.get_objects()),
    }


def trained(comm, data, settings):
    """The losses of one run."""
    seen = Seen()
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
    comm, data = sp.init(), planted(vertices)
    settings = {"pipeline": pipeline, **({} if staleness is None else {"staleness": staleness})}
    begin, wrong, first, memory, left = time.monotonic(), 0, trained(comm, data, settings), [], []
    while comm.broadcast(np.array([time.monotonic() - begin < 60 * minutes]))[0]:
        losses = trained(comm, data, settings)
        wrong += losses != first if staleness is None else not np.isfinite(losses).all()
        memory.append((time.monotonic() - begin, anonymous_memory()))
        left.append(counts())
    begins = len(left) // 10
    more = [name for name, number in left[-1].items() if number > left[begins][name]]
    facts = {"wrong": int(wrong), "more": more, "MiB": growth(memory[begins:]), "counts": left[-1]}
    ranks = all_gather_object(comm, facts)
    bad = [r for r, one in enumerate(ranks) if one["wrong"] or one["more"] or one["MiB"].get("growth", 0) > most_growth]
    if comm.rank == 0:
        facts = {**settings, "backend": comm.name, "ranks": comm.size, "runs": 1 + len(left), "bad": bad}
        print(json.dumps({**facts, "minutes": round((time.monotonic() - begin) / 60, 1), "by rank": ranks}), flush=True)
    comm.close()
    raise typer.Exit(1 if bad else 0)


if __name__ == "__main__":
    typer.run(main)
