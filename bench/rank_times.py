"""Time of a bulk by algorithm and replication, taking turns: `mpirun -n 4 python bench/rank_times.py FOLDER RESULT`.

Over a slow network: on each of four hosts, or network namespaces whose links are shaped (tbf), with RANK, WORLD_SIZE,
MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME set. FOLDER may be RMAT, as in rmat:18,26, which each rank makes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import spsample as sp
from json_lines import append
from machine_facts import machine_facts
from spsample.comm.communicator import Communicator
from spsample.distributed.published.variants import ComparedGraph
from traffic_cells import SAMPLERS, load, seeds_of

ALGORITHMS = ("column", "stages", "oblivious", "auto")
TRIAL = 8
"""Bulks of the trial of "auto"; they are not timed."""


def main(
    folder: Annotated[str, typer.Argument(help="Of indptr.npy and indices.npy, or rmat:SCALE,EDGE_FACTOR.")],
    result: Annotated[Path, typer.Argument(help="JSON lines, to which rank 0 adds.")],
    k: Annotated[int, typer.Option(help="Batches of a bulk.")] = 16,
    sampler: Annotated[list[str] | None, typer.Option(help="Names of `traffic`.")] = None,
    replication: Annotated[list[int] | None, typer.Option(help="c")] = None,
    algorithm: Annotated[list[str] | None, typer.Option(help="Some of them.")] = None,
    link: Annotated[str, typer.Option(help="What connects the ranks, for the record.")] = "shared memory",
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 3,
) -> None:
    """Median over rounds of the slowest rank's time, and of its ratio to the time of "column" in the same round."""
    comm = sp.init()
    graph = sp.load_dataset(folder).graph if folder.startswith("rmat:") else load(Path(folder))
    facts = {"machine": machine_facts(1), "ranks": comm.size, "over": comm.name, "link": link}
    for name in sampler or ("GraphSAGE", "LADIES norm"):
        seeds = seeds_of(graph, k * SAMPLERS[name][1])
        turns: dict[tuple[int, str], list[float]] = {}
        sides = [(c, one) for c in replication or (1, 2) for one in algorithm or ALGORITHMS]
        parts = {side: partitioned(graph, comm, *side) for side in sides}
        for round_ in range(rounds + 1):
            for side in sides if round_ % 2 else reversed(sides):  # what comes after a slow one finds cold caches
                for _ in range(1 if round_ or side[1] != "auto" else TRIAL + 1):
                    seconds = timed(parts[side], comm, seeds, SAMPLERS[name])
                if round_:
                    turns.setdefault(side, []).append(seconds)
        found = [line(name, k, side, turns, parts[side]) for side in sides]
        if comm.rank == 0:
            add_lines(result, [{**one, **facts} for one in found])
    comm.close()


def add_lines(result: Path, lines: list[dict[str, Any]]) -> None:
    """To the file and to the screen; after each sampler, so that a run which is cut off has its first ones."""
    append(result, lines)
    for one in lines:
        typer.echo(f"{one['sampler']:15} k={one['batches']} c={one['replication']} {one['words']}")


def partitioned(graph: sp.Graph, comm: Any, c: int, algorithm: str) -> sp.PartitionedGraph:
    """A cut so."""
    return ComparedGraph.from_graph(graph, sp.ProcessGrid(comm, replication=c), algorithm=algorithm)


def timed(parts: sp.PartitionedGraph, comm: Any, seeds: Any, how: tuple[sp.Sampler, int]) -> float:
    """Seconds of the slowest rank."""
    return slowest(comm, lambda: sp.bulk_sample(parts, seeds, how[0], batch_size=how[1]))


def slowest(comm: Communicator, call: Callable[[], object]) -> float:
    """Seconds that a collective call takes the slowest rank."""
    comm.all_gather(np.zeros(1))
    start = time.perf_counter()
    call()
    return float(comm.all_gather(np.array([time.perf_counter() - start])).max())


def line(
    name: str, k: int, side: tuple[int, str], turns: dict[tuple[int, str], list[float]], parts: sp.PartitionedGraph
) -> dict[str, Any]:
    """Of one side; ratios to "column" and to the fastest other algorithm, by medians."""
    own, column = turns[side], turns[side[0], "column"]
    over = statistics.median(a / b for a, b in zip(own, column, strict=True))
    others = [statistics.median(times) for (c, one), times in turns.items() if c == side[0] and one != "auto"]
    facts: dict[str, Any] = {"seconds": statistics.median(own), "least": min(own), "most": max(own)}
    facts |= {"over_column": over, "over_best": facts["seconds"] / min(others)}
    facts["chosen"] = [one.algorithm for one in parts.chosen_algorithms]
    facts["words"] = f"{side[1]:9} {1e3 * facts['seconds']:8.1f} ms, {over:.2f} of column {' '.join(facts['chosen'])}"
    return {"kind": "time", "sampler": name, "batches": k, "replication": side[0], "algorithm": side[1], **facts}


if __name__ == "__main__":
    typer.run(main)
