"""Collective methods x algorithms x grids x graphs: every pair of these, equal to one process."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from collective_methods import (
    ALGORITHMS,
    FRONTIER,
    GRIDS,
    LAYOUTS,
    METHODS,
    NUM_BATCHES,
    TIMEOUT,
    asked,
    difference,
    differences,
    graphs,
    on_ranks,
    selector,
)
from covers import pairs

from spsample.comm import run_threads
from spsample.errors import InputError

PUBLISHED = [name for name in ALGORITHMS if name.startswith(("stages", "oblivious"))]


SHARES = 7  # of the methods


def covering():
    """Grids with algorithms, graphs, layouts and some of the methods."""
    for *one, share in pairs(ALGORITHMS, GRIDS, graphs(), LAYOUTS, range(SHARES)):
        yield *one, list(METHODS)[share::SHARES]


def test_the_cover_has_every_pair():
    factors = [ALGORITHMS, GRIDS, list(graphs()), LAYOUTS, list(METHODS)]
    runs = [(*one, method) for *one, methods in covering() for method in methods]
    for i, j in combinations(range(len(factors)), 2):
        assert {(run[i], run[j]) for run in runs} == set(product(factors[i], factors[j]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_as_on_one_process(algorithm):
    wrong = {
        (p, c, graph, layout): found
        for name, (p, c), graph, layout, methods in covering()
        if name == algorithm and (found := differences(p, c, algorithm, graph, layout, methods))
    }
    assert not wrong


def own_rows(p, c, algorithm, graph, method):
    """Each rank asks for the rows of batches of its own; an error that all ranks raise is one."""

    def body(comm):
        shared, grid = on_ranks(comm, graphs()[graph], c, algorithm)
        return asked(FRONTIER[method], shared, grid, own=True)

    return difference(method, graph, run_threads(p, body, TIMEOUT))


@pytest.mark.parametrize("method", FRONTIER)
@pytest.mark.parametrize(("p", "c"), [(2, 2), (4, 2), (6, 3)])
def test_owners_answer_whatever_each_rank_asks(method, p, c):
    assert not own_rows(p, c, "column", "rmat, weights", method)


@pytest.mark.parametrize(
    ("algorithm", "p", "c", "method"),
    [
        (algorithm, *((2, 2), (4, 2), (6, 3), (8, 8))[(a + m) % 4], method)
        for (a, algorithm), (m, method) in product(enumerate(PUBLISHED), enumerate(FRONTIER))
        if method != "norms"  # of the graph, and not of rows
    ],
)
def test_other_rows_than_the_row_group_are_refused(algorithm, p, c, method):
    with pytest.raises(InputError, match="Q: got other rows than on other ranks of the row group"):
        own_rows(p, c, algorithm, "rmat", method)


@pytest.mark.parametrize("algorithm", PUBLISHED)
@pytest.mark.parametrize("differs", ["vertices", "order", "batches", "batch_ids"])
def test_one_rank_of_four_that_differs(algorithm, differs):
    """All ranks raise, those of other row groups too, and the next call is right."""

    def body(comm):
        shared, _ = on_ranks(comm, graphs()["rmat"], 2, algorithm)
        A = shared.operand()
        Q = right = selector(shared, shared.sampled_batches(NUM_BATCHES))
        if comm.rank == 3:
            Q = {
                "vertices": Q._replace(vertices=(Q.vertices + 1) % shared.num_nodes),
                "order": Q._replace(vertices=Q.vertices[::-1].copy()),
                "batches": Q._replace(batch_ptr=np.minimum(Q.batch_ptr + 1, len(Q.vertices)) * (Q.batch_ptr > 0)),
                "batch_ids": Q._replace(batch_ids=Q.batch_ids + 1),
            }[differs]
        with pytest.raises(InputError, match="other rows"), shared.sampling():
            A.frontier(Q).take_rows(False)
        with shared.sampling():
            return shared.operand().frontier(right).row_statistics.counts.tolist()

    local = graphs()["rmat"]
    for rank, counts in enumerate(run_threads(4, body, TIMEOUT)):
        positions = [i for i in range(NUM_BATCHES) if i % 4 // 2 == rank // 2]
        assert counts == local.in_degrees()[selector(local, positions).vertices].tolist()
