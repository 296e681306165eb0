"""Sample for a long time over several ranks: every bulk must be right, and memory must not grow.

    mpirun -n 4 python tests/by_hand/soak_bulks.py --graph rmat:18,16 --minutes 30
    torchrun --nproc-per-node=4 tests/by_hand/soak_bulks.py --minutes 10

Again and again, each time of another epoch and on graphs that are opened anew, all bulks of `same_bulks.py` are sampled
and compared with those of one process. After the first time, each rank's anonymous memory is recorded with every bulk.
The exit status is 1 where a bulk is wrong or a rank has grown by more than ``--most-growth``. Set OMP_NUM_THREADS=1
where ranks share cores. docs/many-ranks-checked.md has a run of half an hour.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from held_memory import anonymous_memory, growth
from same_bulks import Plan, compare, different

from spsample.comm import all_gather_object, init

LEAST_PASSES = 3


def main(
    graph: Annotated[str, typer.Option(help="A data set, as spsample train takes it.")] = "rmat:14,16",
    minutes: Annotated[float, typer.Option(help=f"How long; {LEAST_PASSES} times through everything at least.")] = 30.0,
    batches: Annotated[int, typer.Option()] = 16,
    batch_size: Annotated[int, typer.Option()] = 64,
    graph_cache: Annotated[Path, typer.Option(help="Folder for stores of the graph.")] = Path("build/graphs"),
    most_growth: Annotated[float, typer.Option(help="MiB by which a rank may grow.")] = 8.0,
    backend: Annotated[str, typer.Option(help="As of spsample.init.")] = "auto",
) -> None:
    """Sample until the time is over; rank 0 prints a JSON line after each time through everything and at the end."""
    plan = Plan([graph], hubs="1MiB", batches=batches, batch_size=batch_size, cache=graph_cache)
    comm, begin = init(backend), time.monotonic()
    passes = bulks = wrong = 0
    samples = []
    while passes < LEAST_PASSES or comm.broadcast(np.array([time.monotonic() - begin < 60 * minutes]))[0]:
        results = []
        for result in compare(comm, replace(plan, epoch=passes % 3)):
            results.append(result)
            if passes:
                samples.append((time.monotonic() - begin, anonymous_memory()))
        passes, bulks = passes + 1, bulks + len(results)
        if comm.rank == 0:
            wrong += len(different(results))
            done = {"minutes": round((time.monotonic() - begin) / 60, 1), "passes": passes, "bulks": bulks}
            print(json.dumps(done | {"wrong": wrong}), flush=True)
    ranks, wrong = all_gather_object(comm, growth(samples)), all_gather_object(comm, wrong)[0]
    grown = [rank for rank, one in enumerate(ranks) if one["growth"] > most_growth]
    if comm.rank == 0:
        facts = {"graph": graph, "backend": comm.name, "ranks": comm.size, "bulks": bulks, "wrong": wrong}
        print(json.dumps(facts | {"MiB by rank": ranks, "grown": grown}), flush=True)
    comm.close()
    raise typer.Exit(1 if wrong or grown else 0)


if __name__ == "__main__":
    typer.run(main)
