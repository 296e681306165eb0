"""What owners send for the column law, sums by column or rows: the cheaper one, and the same sums either way."""

from __future__ import annotations

import numpy as np
import pytest

import spsample as sp
from spsample.backends import Draw, QuantisationRule, StackedSelector
from spsample.comm import Received, run_threads
from spsample.distributed import PartitionedGraph, ProcessGrid
from spsample.distributed.column.frontier import RemoteFrontier
from spsample.distributed.column.sums import ask, draw_from_answers, merged
from spsample.distributed.wire_format import pack, pack_pieces, unpack, width_of

N, TIMEOUT = 4000, 60
KEY = (5, 6)


def graph(weighted: bool) -> sp.Graph:
    """Rows 0 to 99 of each half have the same 30 columns, the others 30 columns of their own or shared by few."""
    rng = np.random.default_rng(1)
    sources = rng.integers(0, N, (N, 30))
    sources[: N // 2][:100] = sources[N // 2 :][:100] = np.arange(30)
    weights = rng.random(30 * N).astype(np.float32) if weighted else None
    return sp.Graph.from_edge_index(
        np.stack([sources.ravel(), np.repeat(np.arange(N), 30)]), num_nodes=N, edge_weight=weights
    )


def selector(batches: list[np.ndarray]) -> StackedSelector:
    ptr = np.concatenate([[0], np.cumsum([len(b) for b in batches])]).astype(np.int64)
    return StackedSelector(ptr, np.concatenate(batches).astype(np.int32), np.arange(len(batches)))


def alike(rng: np.random.Generator, size: int) -> np.ndarray:
    """Rows of both halves with the same columns: sums are cheaper."""
    return np.concatenate([rng.permutation(100)[:size], N // 2 + rng.permutation(100)[:size]])


def other(rng: np.random.Generator, size: int) -> np.ndarray:
    """Rows of both halves with other columns: rows are cheaper."""
    return np.concatenate([100 + rng.permutation(200)[:size], N // 2 + 100 + rng.permutation(200)[:size]])


BULKS = {
    "one batch of rows alike": lambda rng: [alike(rng, 50)],
    "one batch": lambda rng: [other(rng, 50)],
    "all alike": lambda rng: [alike(rng, 60) for _ in range(20)],
    "all other": lambda rng: [other(rng, 60) for _ in range(20)],
    "other ones first": lambda rng: [other(rng, 20)] * 3 + [alike(rng, 90) for _ in range(21)],
    "other ones last": lambda rng: [alike(rng, 90) for _ in range(21)] + [other(rng, 20)] * 3,
    "one large batch at the end": lambda rng: [alike(rng, 3) for _ in range(30)] + [other(rng, 200)],
    "nearly as many bytes": lambda rng: [np.append(alike(rng, 100), other(rng, 40 + i)) for i in range(8)],
    "empty ones": lambda rng: [other(rng, 0)] * 9,
}


def bytes_of(A: sp.Graph, Q: StackedSelector, part: int) -> tuple[int, int]:
    """What the sums and the rows of a half take."""
    here = [b[(b >= part * N // 2) & (b < (part + 1) * N // 2)] for b in np.split(Q.vertices, Q.batch_ptr[1:-1])]
    sums = [np.unique([*A.indices.reshape(N, 30)[b].ravel()], return_counts=True)[1] for b in here]
    columns, largest = sum(len(s) for s in sums), max((int(s.max(initial=0)) for s in sums), default=0)
    rows = len(np.unique(np.concatenate(here)))
    return columns * (4 + width_of(largest)), rows * (30 * 4 + 1)


@pytest.mark.parametrize("bulk", BULKS)
def test_owners_send_what_is_cheaper(bulk):
    """Within 2 % (in fact always), however unlike the batches are; another rank asks for other batches at once."""
    A = graph(weighted=False)

    def body(comm):
        name = bulk if comm.rank == 0 else "all other"
        Q = selector(BULKS[name](np.random.default_rng(comm.rank)))
        operand = PartitionedGraph.from_graph(A, ProcessGrid(comm, 1)).operand()
        rows = ask(RemoteFrontier(operand, Q), QuantisationRule(None, 1, 2), 0).rows.parts
        for part in range(2):
            both = bytes_of(A, Q, part)
            assert both[int(rows[part])] <= 1.02 * min(both)
        return rows.tolist()

    assert run_threads(2, body, TIMEOUT)[1] == [True, True]


class Counting:
    """A backend that counts the batches that it merges."""

    def __init__(self, backend):
        self._backend = backend
        self.merged = 0

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def merge_columns(self, A, Q, rule):
        self.merged += len(Q.batch_ids)
        return self._backend.merge_columns(A, Q, rule)


@pytest.mark.parametrize(("k", "most"), [(80, 10), (4, 2)])
def test_owners_merge_no_more_than_it_takes(k, most):
    """The same rows in every batch: sums of a batch take three quarters of the bytes of the rows."""
    A = graph(weighted=False)

    def body(comm):
        operand = PartitionedGraph.from_graph(A, ProcessGrid(comm, 1)).operand()
        backend = operand.held.block.backend = Counting(operand.backend)
        Q = selector([100 + np.arange(comm.rank * N // 2, comm.rank * N // 2 + 150)] * k)
        sample = operand.frontier(Q).draw_merged(QuantisationRule(None, 1, 2), Draw(KEY, 0, 20))
        assert len(sample.columns) == 20 * k
        return backend.merged

    assert max(run_threads(2, body, TIMEOUT)) <= most


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bulk", [name for name in BULKS if name != "empty ones"])
@pytest.mark.parametrize("later_bytes", [-(2**40), 0, 2**40])
@pytest.mark.parametrize("hubs", [None, 40_000])
def test_rows_and_sums_give_the_same(weighted, bulk, later_bytes, hubs):
    """All parts send rows, or all send sums, or each what is cheaper: the same Q A and the same draws from it."""
    A = graph(weighted)
    Q = selector(BULKS[bulk](np.random.default_rng(0)))
    shifts = np.full(len(Q.batch_ids), 20) if weighted else None
    rule, draw = QuantisationRule(shifts, 1, 2), Draw(KEY, 1, 40)
    local = A.operand().frontier(Q)
    want = local.merge_columns(rule), local.draw_merged(rule, draw)

    def body(comm):
        parts = PartitionedGraph.from_graph(A, ProcessGrid(comm, 1), replicate_hubs=hubs)
        frontier = RemoteFrontier(parts.operand(), Q)
        answered = ask(frontier, rule, later_bytes)
        return merged(frontier, answered, rule), draw_from_answers(frontier, answered, rule, draw)

    for both in run_threads(2, body, TIMEOUT):
        for one, expected in zip(both, want, strict=True):
            for name, mine, array in zip(one._fields, one, expected, strict=True):
                np.testing.assert_array_equal(mine, array, err_msg=name)
                assert mine.dtype == array.dtype, name


def test_pieces_are_packed_as_one_array():
    """For each rank the width of the largest of all its pieces; nothing for a rank without."""
    rng = np.random.default_rng(0)
    pieces = [
        [rng.integers(0, 1 << bits, size).astype(np.uint64) for bits, size in ranks]
        for ranks in ([(3, 5), (40, 2), (3, 0)], [], [(16, 7)], [(8, 0)], [(63, 1), (1, 1)])
    ]
    joined = [np.concatenate([np.zeros(0, np.uint64), *parts]) for parts in pieces]
    counts = np.array([len(values) for values in joined])
    sent, expected = pack_pieces(pieces), pack(np.concatenate(joined), counts)
    assert sent.counts.tolist() == expected.counts.tolist() == [7 * 8, 0, 7 * 2, 0, 2 * 8]
    assert sent.rows.tobytes() == expected.rows.tobytes()
    back = unpack(Received(sent.rows, sent.counts), counts, np.uint64)
    assert back.tolist() == np.concatenate(joined).tolist()
