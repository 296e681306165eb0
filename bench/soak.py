"""Sample for a long time over several ranks: every bulk must be right, and memory must not grow.

    mpirun -n 4 python bench/soak.py --graph cnr2000 --minutes 30
    torchrun --nproc-per-node=4 bench/soak.py --minutes 10

One round is a bulk on a partitioned graph; rounds go through samplers, weights, replication, algorithms and epochs. Its
SHA-256 is compared with that of one process. After the first pass through all of them, each rank's anonymous memory
(`RssAnon`) is recorded per round: the slope is that of least squares, the growth that of the median of the last quarter
over that of the first. The exit status is 1 where a bulk is wrong or a rank has grown by more than `--most-growth`.
"""

from __future__ import annotations

import gc
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import spsample as sp
from bulk_digests import SAMPLERS, bulk_digest, seeds_of, store_of
from resident import resident
from spsample.comm import Communicator, init
from spsample.distributed import ProcessGrid
from spsample.distributed.published.variants import ALL_ALGORITHMS, ComparedGraph

EPOCHS = 3
MIB = 1 << 20


class Round(NamedTuple):
    """What a bulk is sampled from, and how."""

    weighted: bool
    c: int
    algorithm: str
    sampler: str
    epoch: int

    @property
    def case(self) -> tuple[bool, str, int]:
        """Whatever has the same case has the same hash."""
        return self.weighted, self.sampler, self.epoch


@dataclass
class Soak:
    """Graphs over all grids of a number of ranks, the hashes expected, and what was found so far."""

    comm: Communicator
    stores: dict[bool, Path]
    batches: int
    batch_size: int

    def __post_init__(self) -> None:
        replications = [c for c in range(1, self.comm.size + 1) if self.comm.size % c == 0]
        grids = {c: ProcessGrid(self.comm, c) for c in replications}
        self.graphs = {
            (weighted, c, algorithm): ComparedGraph.open(
                path, grids[c], algorithm=algorithm, replicate_hubs="1MiB" if c == 1 else None
            )
            for weighted, path in self.stores.items()
            for c in replications
            for algorithm in ALL_ALGORITHMS
        }
        self.rounds = [
            Round(*key, sampler, epoch)
            for epoch, sampler in itertools.product(range(EPOCHS), SAMPLERS)
            for key in self.graphs
        ]
        self.expected = {} if self.comm.rank else self._one_process()
        self.memory: list[tuple[float, int]] = []
        self.wrong = 0

    def _one_process(self) -> dict[tuple[bool, str, int], str]:
        graphs = {weighted: sp.Graph.open(path) for weighted, path in self.stores.items()}
        cases = itertools.product(graphs, SAMPLERS, range(EPOCHS))
        return {case: bulk_digest(self._sample(graphs[case[0]], *case[1:])) for case in cases}

    def _sample(self, graph: Any, sampler: str, epoch: int) -> sp.BulkSample:
        seeds = seeds_of(graph.num_nodes, self.batches * self.batch_size)
        return sp.bulk_sample(graph, seeds, SAMPLERS[sampler], batch_size=self.batch_size, epoch=epoch, edge_ids=True)

    def run(self, number: int, begin: float) -> None:
        """One round."""
        this = self.rounds[number % len(self.rounds)]
        graph = self.graphs[this.weighted, this.c, this.algorithm]
        digest = bulk_digest(self._sample(graph, this.sampler, this.epoch), self.comm)
        if self.comm.rank == 0 and digest != self.expected[this.case]:
            self.wrong += 1
            print(f"WRONG in round {number}: {this}", flush=True)
        if number >= len(self.rounds):
            self.memory.append((time.monotonic() - begin, anonymous_memory()))

    def finished(self, end: float) -> bool:
        """Whether rank 0 says that it is time."""
        return bool(self.comm.broadcast(np.array([time.monotonic() > end]))[0])


def anonymous_memory() -> int:
    """Bytes of this process that no file holds."""
    gc.collect()
    return resident("RssAnon")


def memory_of(samples: list[tuple[float, int]]) -> dict[str, float]:
    """First and last MiB, slope in MiB per hour, growth in MiB."""
    if len(samples) < 8:
        return {}
    seconds, values = (np.array(column, np.float64) for column in zip(*samples, strict=True))
    quarter = len(values) // 4
    growth = np.median(values[-quarter:]) - np.median(values[:quarter])
    slope = np.polyfit(seconds / 3600, values, 1)[0]
    facts = {"first": values[0], "last": values[-1], "largest": values.max(), "slope per hour": slope, "growth": growth}
    return {name: round(float(value) / MIB, 2) for name, value in facts.items()}


def main(
    graph: Annotated[str, typer.Option(help="A data set or rmat:SCALE,EDGE_FACTOR.")] = "rmat:14,16",
    minutes: Annotated[float, typer.Option(help="How long; one pass through everything at least.")] = 30.0,
    batches: Annotated[int, typer.Option()] = 16,
    batch_size: Annotated[int, typer.Option()] = 64,
    graph_cache: Annotated[Path, typer.Option(help="Folder for stores of the graph.")] = Path("build/graphs"),
    most_growth: Annotated[float, typer.Option(help="MiB by which a rank may grow.")] = 8.0,
    backend: Annotated[str, typer.Option(help="As of spsample.init.")] = "auto",
) -> None:
    """Sample until the time is over; rank 0 prints, a JSON line a minute and one at the end."""
    comm = init(backend)
    if comm.rank == 0:
        for weighted in (False, True):
            store_of(graph, weighted, graph_cache)
    comm.barrier()
    soak = Soak(
        comm, {weighted: store_of(graph, weighted, graph_cache) for weighted in (False, True)}, batches, batch_size
    )
    begin, told, number = time.monotonic(), 0.0, 0
    while number < 2 * len(soak.rounds) or not soak.finished(begin + 60 * minutes):
        soak.run(number, begin)
        number += 1
        if comm.rank == 0 and time.monotonic() > told + 60:
            told = time.monotonic()
            print(
                json.dumps({"minutes": round((told - begin) / 60, 1), "rounds": number, "wrong": soak.wrong}),
                flush=True,
            )
    facts = memory_of(soak.memory)
    text = np.frombuffer(json.dumps(facts).encode().ljust(500), np.uint8)
    ranks = [json.loads(row.tobytes().decode()) for row in comm.all_gather(text)]
    wrong = int(comm.all_reduce(np.array([soak.wrong]))[0])
    grown = [rank for rank, one in enumerate(ranks) if one.get("growth", 0.0) > most_growth]
    if comm.rank == 0:
        result = {"graph": graph, "backend": comm.name, "ranks": comm.size, "rounds": number, "wrong": wrong}
        result |= {"seconds": round(time.monotonic() - begin), "one pass": len(soak.rounds), "MiB by rank": ranks}
        print(json.dumps(result | {"grown": grown}), flush=True)
    comm.close()
    raise typer.Exit(1 if wrong or grown else 0)


if __name__ == "__main__":
    typer.run(main)
