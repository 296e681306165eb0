"""Latency and bandwidth between ranks, as a plan takes them: `mpirun -n 4 python bench/link_probe.py LINK RESULT`.

Over a slow network: as `rank_times.py`.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import spsample as sp
from json_lines import append
from rank_times import slowest
from spsample.comm.communicator import Communicator

SMALL, IN_A_ROW = 64, 20
"""Words to each other rank, where the latency counts, and exchanges of that size, one after the other."""


def main(
    link: Annotated[str, typer.Argument(help="What connects the ranks, for the record.")],
    result: Annotated[Path, typer.Argument(help="JSON lines, to which rank 0 adds.")],
    megabytes: Annotated[float, typer.Option(help="To each other rank, where the bandwidth counts.")] = 4,
    rounds: Annotated[int, typer.Option(help="Of each, after one that does not count.")] = 5,
) -> None:
    """Seconds a message, and bytes a second where one rank sends and where all do: medians, of the slowest rank."""
    comm = sp.init()
    words = int(megabytes * 1e6 / 8)
    every = np.ones((comm.size, comm.size), np.int64) - np.eye(comm.size, dtype=np.int64)
    first = np.zeros_like(every)
    first[0] = every[0]
    small = seconds_of(comm, SMALL * every, rounds, IN_A_ROW)
    pair = seconds_of(comm.split(comm.rank // 2), SMALL * (1 - np.eye(2, dtype=np.int64)), rounds, IN_A_ROW)
    among_two = float(comm.all_reduce(np.array([pair]), "max")[0])
    away, both = (seconds_of(comm, words * counts, rounds) for counts in (first, every))
    alpha, per_exchange = costs_of(comm.size - 1, small, among_two)
    bandwidth, duplex = rates_of(8.0 * words * (comm.size - 1), small, away, both)
    found = {"alpha": alpha, "per_exchange": per_exchange, "bandwidth": bandwidth, "duplex": duplex}
    if comm.rank == 0:
        facts = {"kind": "link", "link": link, "ranks": comm.size, "over": comm.name, "megabytes": megabytes, **found}
        append(result, [facts])
        typer.echo(json.dumps(facts))
    comm.close()


def costs_of(others: int, among_all: float, among_two: float) -> tuple[float, float]:
    """Seconds a message, and an exchange in any case, from the seconds of small exchanges."""
    alpha = min(max((among_all - among_two) / (others - 1), 0.0), among_two)
    return alpha, max(among_two - alpha, 0.0)


def rates_of(num_bytes: float, small: float, away: float, both: float) -> tuple[float, float]:
    """Bandwidth and `duplex`, from the seconds in which one rank sends `num_bytes`, and in which all ranks do.

    Bytes are what these exchanges take beyond small ones, or nearly all where small ones take as long.
    """
    away, both = (max(seconds - small, 0.1 * seconds) for seconds in (away, both))
    return num_bytes / away, min(away / both, 1.0)


def seconds_of(comm: Communicator, counts: Any, rounds: int, times: int = 1) -> float:
    """Of an exchange of `counts[q, r]` words from rank q to rank r, without a header: the median of rounds of `times`.

    The header before an exchange is an exchange of its own in a plan.
    """
    send, receive = counts[comm.rank], counts[:, comm.rank]
    rows = np.zeros(int(send.sum()), np.int64)

    def exchanges() -> None:
        with comm.agreed("a probe"):
            for _ in range(times):
                comm.all_to_all_v(rows, send, receive)

    return statistics.median([slowest(comm, exchanges) for _ in range(rounds + 1)][1:]) / times


if __name__ == "__main__":
    typer.run(main)
