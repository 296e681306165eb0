"""Time of a bulk by algorithm and replication, taking turns: `mpirun -n 4 python bench/rank_times.py FOLDER RESULT`."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import spsample as sp
from machine_facts import machine_facts
from spsample.distributed.published.variants import ComparedGraph
from traffic_cells import SAMPLERS, load, seeds_of

ALGORITHMS = ("column", "stages", "stages-split", "oblivious")


def main(
    folder: Annotated[Path, typer.Argument(help="Of indptr.npy and indices.npy.")],
    result: Annotated[Path, typer.Argument(help="JSON lines, written by rank 0.")],
    k: Annotated[int, typer.Option(help="Batches of a bulk.")] = 16,
    sampler: Annotated[list[str] | None, typer.Option(help="Names of `traffic`.")] = None,
    replication: Annotated[list[int] | None, typer.Option(help="c")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 3,
) -> None:
    """Median over rounds of the slowest rank's time, and of its ratio to the time of "column" in the same round."""
    comm = sp.init()
    graph = load(folder)
    lines: list[dict[str, Any]] = []
    for name in sampler or ("GraphSAGE", "LADIES norm"):
        seeds = seeds_of(graph, k * SAMPLERS[name][1])
        turns: dict[tuple[int, str], list[float]] = {}
        sides = [(c, algorithm) for c in replication or (1, 2) for algorithm in ALGORITHMS]
        parts = {side: partitioned(graph, comm, *side) for side in sides}
        for round_ in range(rounds + 1):
            for side in sides:
                seconds = timed(parts[side], comm, seeds, SAMPLERS[name])
                if round_:
                    turns.setdefault(side, []).append(seconds)
        lines += [line(name, k, side, turns) for side in sides]
    if comm.rank == 0:
        records = [{"kind": "machine", "ranks": comm.size, **machine_facts(1)}, *lines]
        result.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    comm.close()


def partitioned(graph: sp.Graph, comm: Any, c: int, algorithm: str) -> sp.PartitionedGraph:
    """A cut so."""
    return ComparedGraph.from_graph(graph, sp.ProcessGrid(comm, replication=c), algorithm=algorithm)


def timed(parts: sp.PartitionedGraph, comm: Any, seeds: Any, how: tuple[sp.Sampler, int]) -> float:
    """Seconds of the slowest rank."""
    comm.all_gather(np.zeros(1))
    start = time.perf_counter()
    sp.bulk_sample(parts, seeds, how[0], batch_size=how[1])
    return float(comm.all_gather(np.array([time.perf_counter() - start])).max())


def line(name: str, k: int, side: tuple[int, str], turns: dict[tuple[int, str], list[float]]) -> dict[str, Any]:
    """Of one side."""
    own, column = turns[side], turns[side[0], "column"]
    over = [a / b for a, b in zip(own, column, strict=True)]
    facts = {"seconds": statistics.median(own), "least": min(own), "most": max(own)}
    facts["over_column"] = statistics.median(over)
    return {"kind": "time", "sampler": name, "batches": k, "replication": side[0], "algorithm": side[1], **facts}


if __name__ == "__main__":
    typer.run(main)
