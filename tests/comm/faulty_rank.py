"""A job in which one rank goes wrong: `LAUNCHER python faulty_rank.py BACKEND FAULT`, with seconds to wait at most.

kill: rank 2 is killed while the others are in an all-to-allv; error: it ends with an exception of its own; away: it
does not come, for longer than the others wait; late: it does not even connect in that time; abort: it ends all; input:
it is given what it refuses, in a call that fails together.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from spsample.comm import Channel, collective, init, waiting
from spsample.errors import InputError

FAULTY = 2
waiting._AT_EXIT = 2  # seconds for the end of a rank that has lost another


def exchange(comm):
    counts = np.full(comm.size, 1000)
    comm.all_to_all_v(np.zeros(counts.sum()), counts, counts, phase="feature rows")


def connect_late(backend, timeout):
    """One rank starts, but makes no communicator."""
    if backend == "mpi":
        from mpi4py import MPI

        if MPI.COMM_WORLD.Get_rank() == FAULTY:
            time.sleep(timeout + 15)


def main(backend, fault, timeout=20.0):
    if fault == "late":
        connect_late(backend, timeout)
    comm = init(backend, timeout)
    for _ in range(10):
        exchange(comm)
    if fault == "input":
        with collective(comm, Channel(comm)):
            if comm.rank == FAULTY:
                raise InputError(argument="seeds", given="-3 at position 17", expected="vertex ids in [0, 2708)")
    if comm.rank == FAULTY:
        time.sleep(1.0)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "error":
            raise ZeroDivisionError("this rank's own fault")
        if fault == "abort":
            comm.abort("rank 2 cannot go on")
        if fault == "away":
            time.sleep(timeout + 15)
    exchange(comm)
    print(f"rank {comm.rank} has done all", flush=True)


def write_errors_to(folder):
    """Past the launcher, which drops some of what ranks write as it ends them."""
    os.dup2(os.open(f"{folder}/{os.getpid()}", os.O_CREAT | os.O_WRONLY), sys.stderr.fileno())


if __name__ == "__main__":
    if "SAID" in os.environ:
        write_errors_to(os.environ["SAID"])
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
