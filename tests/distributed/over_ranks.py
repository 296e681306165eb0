"""Edge cases and faults on all ranks of a job: `LAUNCHER python over_ranks.py BACKEND FOLDER [CASE...]`, on 4 ranks.

Each rank compares its batches with those of one process. The exit status is 0 only if all was right on every rank.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from hooked import Fault, Hooked
from partitioned_cases import ALGORITHMS, GRAPHS, batches_of, same_batches
from test_edge_cases import CASES, WHICH, parts_of
from test_faults import DAMAGES, FAULTY, LADIES, REFUSED, caught, other_calls, partitioned, sample

import spsample as sp
from spsample.comm import init
from spsample.distributed import PartitionedGraph, ProcessGrid
from spsample.errors import DataError


def right(comm, bulk, want):
    """This rank's batches are those of one process, and all batches are somewhere."""
    mine = batches_of(bulk)
    same_batches(mine, {i: want[i] for i in mine})
    assert comm.all_reduce(np.array([len(mine)])).item() == len(want)


def edge_cases(comm, folder):
    """Every case by every algorithm, each pair with the next sampler; test_edge_cases.py has more in threads."""
    samplers = WHICH[::3]
    cases = [one for one in CASES.values() if one[0] == comm.size and len(one[2]) <= 1000]
    for number, (_, graph, seeds, batch_size, how) in enumerate(cases):
        want = [batches_of(sp.bulk_sample(graph, seeds, one, batch_size=batch_size)) for one in samplers]
        partition = None if how is None else parts_of(graph.num_nodes, 2, how)
        for at, algorithm in enumerate(ALGORITHMS, number):
            parts = sp.PartitionedGraph.from_graph(
                graph, ProcessGrid(comm, 2), algorithm=algorithm, partition=partition
            )
            which = at % len(samplers)
            right(comm, sp.bulk_sample(parts, seeds, samplers[which], batch_size=batch_size), want[which])


def bad_arguments(comm, folder):
    graph = partitioned(c=2)(comm)
    want = batches_of(sample(GRAPHS["plain"]()))
    for bad, kind, _ in REFUSED[::3]:
        error = caught(partial(sample, graph, **bad if comm.rank == FAULTY else {}))
        assert isinstance(error, kind), error
        assert "rank 2" in str(error)
        right(comm, sample(graph), want)


def bad_stores(comm, folder):
    grid = ProcessGrid(comm, 1)
    want = batches_of(sample(GRAPHS["plain"]()))
    for damage in DAMAGES:
        if comm.rank == FAULTY:
            GRAPHS["plain"]().save(folder / "good", overwrite=True)
            shutil.rmtree(folder / "broken", ignore_errors=True)
            shutil.copytree(folder / "good", folder / "broken")
            damage(folder / "broken")
        comm.barrier()
        path = folder / ("broken" if comm.rank == FAULTY else "good")
        error = caught(partial(PartitionedGraph.open, path, grid))
        assert isinstance(error, DataError), error
        assert "(on rank 2)" in str(error)
        right(comm, sample(PartitionedGraph.open(folder / "good", grid)), want)
        comm.barrier()


def faults_in_the_middle(comm, folder):
    want = batches_of(sample(GRAPHS["plain"](), sampler=LADIES))
    for algorithm in ALGORITHMS:
        fault = Fault()
        graph = partitioned(c=2, algorithm=algorithm)(Hooked(comm, fault))
        sample(graph, sampler=LADIES)
        for number in (1, 3, 5):
            fault.in_exchange(number if comm.rank == FAULTY else 0)
            error = caught(partial(sample, graph, sampler=LADIES))
            assert str(error) == f"rank 2 failed: ArithmeticError: kernel {number}"
            right(comm, sample(graph, sampler=LADIES), want)


def another_call_on_one_rank(comm, folder):
    assert "rank 2 in exchange in phase 'features requests'" in other_calls(comm)


EVERY = ("edge_cases", "bad_arguments", "bad_stores", "faults_in_the_middle", "another_call_on_one_rank")


def main(backend, folder, *cases):
    comm = init(backend, 60)
    for case in cases or EVERY:
        globals()[case](comm, Path(folder))
        if comm.rank == 0:
            print(f"{case}: right", flush=True)
    comm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
