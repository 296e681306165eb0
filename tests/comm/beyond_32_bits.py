"""Messages of more than 2^31 bytes, by hand: `mpirun -n 2 python tests/comm/beyond_32_bits.py mpi`, or gloo.

Needs 10 GB of memory; not run by the tests, which lower the limit instead.
"""

from __future__ import annotations

import sys

import numpy as np

from spsample.comm import init

MUCH = 2**31 + 12345


def main(backend):
    comm = init(backend, timeout=300)
    send = np.zeros(MUCH if comm.rank == 0 else 5, np.uint8)
    send[-3:] = 1, 2, 3
    counts = {0: np.array([0, MUCH]), 1: np.array([5, 0])}[comm.rank]
    of = {0: np.array([0, 5]), 1: np.array([MUCH, 0])}[comm.rank]
    received = comm.all_to_all_v(send, counts, of)
    assert received[-3:].tolist() == [1, 2, 3]
    assert int(received[:-3].max()) == 0
    del received
    gathered = comm.all_gather_v(send, np.array([MUCH, 5]))
    assert gathered[[MUCH - 1, MUCH, -1]].tolist() == [3, 0, 3]
    del gathered
    large = np.zeros(MUCH // 8 + 1, np.int64)
    large[-1] = 7 if comm.rank == 0 else 0
    assert comm.broadcast(large)[-1] == 7
    print(f"rank {comm.rank}: right", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
