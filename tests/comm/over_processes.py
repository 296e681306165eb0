"""Run the contract of communicators on all ranks of a job: `LAUNCHER python over_processes.py BACKEND [CASE...]`.

Every case runs on all ranks, and on parts of them, so that one launch sees several numbers of ranks. After each case
the ranks tell each other what they found, so that all of them know of a failure; rank 0 prints, the exit status is the
number of cases that failed, at most 100.
"""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from communicator_contract import CommunicatorContract

from spsample.comm import init


class MPIContract(CommunicatorContract):
    names_the_lost = True

    def limited(self, comm, limit):
        from spsample.comm import MPICommunicator

        return MPICommunicator(comm._comm, comm.timeout, limit=limit)


class GlooContract(CommunicatorContract):
    names_the_lost = True
    survives_wrong_counts = False  # gloo calls std::terminate


def everyone(backend, verdict):
    """What each rank found, over another way than the communicator that is tested."""
    if backend == "mpi":
        from mpi4py import MPI

        return MPI.COMM_WORLD.allgather(verdict)
    import torch.distributed as dist

    verdicts = [None] * dist.get_world_size()
    dist.all_gather_object(verdicts, verdict)
    return verdicts


def verdict_of(contract, case, comm):
    try:
        getattr(contract, case)(comm)
    except BaseException:
        return traceback.format_exc()
    return ""


def main(backend, cases):
    comm = init(backend, timeout=60)
    assert comm.name == backend
    contract = MPIContract() if backend == "mpi" else GlooContract()
    parts = [comm, comm.split(int(comm.rank == 0), -comm.rank)]
    if comm.size > 3:
        parts.append(comm.split(comm.rank // 2))
    failures = 0
    begin = time.monotonic()
    for case in cases or contract.cases():
        for part in parts:
            verdicts = everyone(backend, verdict_of(contract, case, part))
            failed = {rank: text for rank, text in enumerate(verdicts) if text}
            failures += bool(failed)
            if comm.rank == 0:
                for rank, text in failed.items():
                    print(f"FAILED {case} on rank {rank} of {part!r}\n{text}", flush=True)
    if comm.rank == 0:
        number = len(cases or contract.cases()) * len(parts)
        print(f"{number - failures} of {number} cases passed in {time.monotonic() - begin:.1f} s", flush=True)
    sys.exit(min(failures, 100))


if __name__ == "__main__":
    np.seterr(over="ignore")
    main(sys.argv[1], sys.argv[2:])
