"""A quick check of all ranks: that they are there and exchange what they should, and how long that takes.

::

    mpirun -n 4 python -m spsample.comm.check
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from dataclasses import dataclass

import numpy as np

from spsample.comm.communicator import Array, Communicator
from spsample.comm.launch import BACKENDS, init
from spsample.errors import CommunicationError, SpSampleError

_SMALL_ROUNDS = 200
_LARGE_ROUNDS = 5
_LARGE = 4 << 20


@dataclass(frozen=True)
class CommCheck:
    """The result of a check.

    Attributes
    ----------
    backend : str
        The communicator's name.
    size : int
    hosts : list of str
        Machine of each rank.
    latency : float
        Seconds of an all-to-all of 64 bytes per pair of ranks, the slowest rank's mean.
    bandwidth : float
        Bytes per second that a rank sends to others in an all-to-allv of 4 MiB per pair, the slowest rank's.
    """

    backend: str
    size: int
    hosts: list[str]
    latency: float
    bandwidth: float

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        machines = len(set(self.hosts))
        where = "1 machine" if machines == 1 else f"{machines} machines"
        lines = [f"{self.size} ranks over {self.backend} on {where}: every exchange is right"]
        lines += [f"  rank {rank} on {host}" for rank, host in enumerate(self.hosts)] if self.size <= 64 else []
        if self.size > 1:
            lines.append(f"  all-to-all of 64 B per pair: {self.latency * 1e6:.0f} us")
            lines.append(f"  all-to-allv of 4 MiB per pair: {self.bandwidth / 1e9:.2f} GB/s sent by each rank")
        return lines


def check_ranks(comm: Communicator) -> CommCheck:
    """Exchange numbers that name their origin, then take times; collective, the same result on every rank.

    Raises
    ------
    CommunicationError
        If something else comes than was sent.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> result = run_threads(2, check_ranks)[0]
    >>> result.backend, result.size
    ('threads', 2)
    """
    everyone = np.arange(comm.size)
    _require(comm, comm.all_to_all(comm.rank * comm.size + everyone, phase="check"), everyone * comm.size + comm.rank)
    counts = comm.rank + everyone  # rank r has r + q rows for rank q, filled with r
    received = comm.all_to_all_v(np.full(int(counts.sum()), comm.rank), counts, counts, phase="check")
    _require(comm, received, np.repeat(everyone, counts))
    latency, seconds = _seconds(comm, 8, _SMALL_ROUNDS), _seconds(comm, _LARGE // 8, _LARGE_ROUNDS)
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    names = comm.all_gather(np.array([name], "S64"), phase="check")
    hosts = [text.decode(errors="replace") for text in names[:, 0].tolist()]
    return CommCheck(comm.name, comm.size, hosts, latency, (comm.size - 1) * _LARGE / seconds)


def _require(comm: Communicator, received: Array, expected: Array) -> None:
    if not np.array_equal(received, expected):
        raise CommunicationError(f"rank {comm.rank}: received {received.tolist()}, not {expected.tolist()}")


def _seconds(comm: Communicator, words: int, rounds: int) -> float:
    """Seconds of one exchange of `words` words per pair of ranks: the slowest rank's mean."""
    send = np.zeros((comm.size * words), np.int64)
    counts = np.full(comm.size, words)
    comm.barrier(phase="check")
    begin = time.perf_counter()
    for _ in range(rounds):
        if words == 8:
            comm.all_to_all(send.reshape(comm.size, words), phase="check")
        else:
            comm.all_to_all_v(send, counts, counts, phase="check")
    mean = (time.perf_counter() - begin) / rounds
    return float(comm.all_reduce(np.array([mean]), "max", phase="check")[0])


def main(arguments: list[str] | None = None) -> int:
    """Run the check over the ranks that a launcher started; rank 0 prints."""
    parser = argparse.ArgumentParser(prog="python -m spsample.comm.check", description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    parser.add_argument("--timeout", type=float, help="seconds to wait for other ranks")
    options = parser.parse_args(arguments)
    try:
        comm = init(options.backend, options.timeout)
        result = check_ranks(comm)
    except SpSampleError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    if comm.rank == 0:
        print("\n".join(result.lines()), flush=True)  # noqa: T201
    comm.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
