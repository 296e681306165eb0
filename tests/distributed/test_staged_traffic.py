"""What the published algorithms send and receive, against a count made from the frontiers of a local bulk."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from partitioned_cases import plain
from stages_variants import ComparedGraph

import spsample as sp
from spsample.comm import Recorder, run_threads
from spsample.distributed import ProcessGrid
from spsample.distributed.placement import balanced

ID = 4  # bytes: of a vertex, in requests and in rows


def numbers(values) -> int:
    """Bytes of numbers in the width of the largest."""
    values = np.asarray(values)
    return len(values) * next(w for w in (1, 2, 4, 8) if int(values.max(initial=0)) < 256**w)


@dataclass
class Bulk:
    """A bulk sampled on one rank, and how its work is laid out on a p/c x c grid."""

    sampler: sp.Sampler
    p: int
    c: int
    edge_ids: bool = False
    A: sp.Graph = field(default_factory=plain)

    def __post_init__(self):
        self.seeds = np.random.default_rng(1).integers(0, self.A.num_nodes, 60)
        self.arguments = {"batch_size": 5, "random_seed": 3, "edge_ids": self.edge_ids}
        self.entry = ID + 8 * self.edge_ids
        self.batches = list(sp.bulk_sample(self.A, self.seeds, self.sampler, **self.arguments))
        self.blocks = self.p // self.c
        bounds = balanced(self.A.indptr, self.blocks).bounds
        self.block_of = np.searchsorted(bounds, np.arange(self.A.num_nodes), side="right") - 1
        split, blocks = self.blocks // self.c, np.arange(self.blocks)
        self.column_of = blocks // split if self.blocks % self.c == 0 else blocks % self.c

    def recorded(self, algorithm):
        """Of each rank: its traffic by phase."""

        def body(comm):
            recorder = Recorder(comm)
            parts = ComparedGraph.from_graph(self.A, ProcessGrid(recorder, self.c), algorithm=algorithm)
            parts.operand()
            recorder.traffic.clear()
            sp.bulk_sample(parts, self.seeds, self.sampler, **self.arguments)
            return recorder.traffic.phases

        return run_threads(self.p, body, 60)

    def layers(self, row):
        """Of each layer its minibatches in a row group."""
        own = [mb.layers for i, mb in enumerate(self.batches) if i % self.p // self.c == row]
        return list(zip(*own, strict=True))

    def distinct(self, minibatches, *blocks):
        frontier = np.unique(np.concatenate([mb.dst_nodes for mb in minibatches]))
        return frontier[np.isin(self.block_of[frontier], blocks)]

    def rows(self, vertices) -> int:
        """Bytes of whole rows and their lengths."""
        degrees = np.diff(self.A.indptr)[vertices]
        return numbers(degrees) + self.entry * int(degrees.sum())

    def blocks_of(self, column):
        return [int(k) for k in np.flatnonzero(self.column_of == column)]

    def dst_of(self, mb, column):
        return mb.dst_nodes[self.column_of[self.block_of[mb.dst_nodes]] == column]


def requests(bulk, row, column):
    """What P(row, column) asks the other ranks of its column for."""
    wanted = [len(bulk.distinct(mbs, k)) for mbs in bulk.layers(row) for k in bulk.blocks_of(column) if k != row]
    return ID * sum(wanted)


def requested_rows(bulk, row, column):
    asked = [(mbs, k) for mbs in bulk.layers(row) for k in bulk.blocks_of(column) if k != row]
    return sum(bulk.rows(bulk.distinct(*what)) for what in asked)


def broadcast_rows(bulk, row, column):
    blocks = [np.flatnonzero(bulk.block_of == k) for k in bulk.blocks_of(column) if k != row]
    return len(bulk.sampler.sizes) * sum(bulk.rows(block) for block in blocks)


def all_pairs(bulk, row, column):
    """The published all-reduce of P: of each batch the rows that a column fetched for it."""
    return sum(bulk.rows(bulk.dst_of(mb, column)) for mbs in bulk.layers(row) for mb in mbs)


def distinct_rows(bulk, row, column):
    """The rows that a column fetched, once for all batches."""
    return sum(bulk.rows(bulk.distinct(mbs, *bulk.blocks_of(column))) for mbs in bulk.layers(row))


def drawn_rows(bulk, row, column):
    """What was drawn from the rows that a column fetched."""
    total = 0
    for mbs, size in zip(bulk.layers(row), bulk.sampler.sizes[::-1], strict=True):
        dst = np.concatenate([bulk.dst_of(mb, column) for mb in mbs])
        lengths = np.minimum(np.diff(bulk.A.indptr)[dst], size)
        total += numbers(lengths) + bulk.entry * int(lengths.sum())
    return total


def sums_and_edges(bulk, row, column):
    """Squared counts: totals for the headroom, sums by column, and the extracted edges."""
    total = 0
    for mbs in bulk.layers(row):
        entries = [np.concatenate([neighbours(bulk.A, v) for v in bulk.dst_of(mb, column)] + [[]]) for mb in mbs]
        sums = [np.unique(columns, return_counts=True)[1] for columns in entries]
        edges = [[np.isin(neighbours(bulk.A, v), mb.src_nodes).sum() for v in bulk.dst_of(mb, column)] for mb in mbs]
        lengths = np.concatenate(edges).astype(int)
        local = numbers([max(len(mb.src_nodes) for mb in mbs) - 1])
        total += numbers([len(columns) for columns in entries]) + 4 * len(mbs)
        total += numbers([len(s) for s in sums]) + sum(map(len, sums)) * ID + numbers(np.concatenate(sums))
        total += numbers(lengths) + local * int(lengths.sum())
    return total


def neighbours(A, v):
    return A.indices[A.indptr[v] : A.indptr[v + 1]]


SAGE, ENTRIES, COLUMNS = sp.GraphSAGE([3, 4, 2]), sp.LADIES([5, 6]), sp.LADIES([5, 6], law="squared_count")
CASES = [
    ("stages", SAGE, False, requested_rows, all_pairs),
    ("stages", SAGE, True, requested_rows, all_pairs),
    ("stages-distinct", SAGE, False, requested_rows, distinct_rows),
    ("stages-distinct", SAGE, True, requested_rows, distinct_rows),
    ("stages-distinct", ENTRIES, False, requested_rows, distinct_rows),
    ("stages-distinct", COLUMNS, False, requested_rows, sums_and_edges),
    ("stages-split", SAGE, False, requested_rows, drawn_rows),
    ("stages-split", SAGE, True, requested_rows, drawn_rows),
    ("oblivious", SAGE, False, broadcast_rows, all_pairs),
    ("oblivious", SAGE, True, broadcast_rows, all_pairs),
    ("stages", ENTRIES, False, requested_rows, all_pairs),
    ("stages", COLUMNS, False, requested_rows, sums_and_edges),
    ("stages-split", COLUMNS, False, requested_rows, sums_and_edges),
    ("oblivious", COLUMNS, False, broadcast_rows, sums_and_edges),
]


@pytest.mark.parametrize(("algorithm", "sampler", "edge_ids", "rows", "reduction"), CASES)
@pytest.mark.parametrize(("p", "c"), [(1, 1), (4, 1), (4, 2), (6, 2), (8, 2), (4, 4)])
def test_bytes_are_those_of_the_frontiers(algorithm, sampler, edge_ids, rows, reduction, p, c):
    bulk = Bulk(sampler, p, c, edge_ids)
    for rank, phases in enumerate(bulk.recorded(algorithm)):
        row, column = divmod(rank, c)
        others = [j for j in range(c) if j != column]
        asked = partial(from_block, bulk, row, column)
        want = {
            "rows requests": (requests(bulk, row, column), asked(requests_of)),
            "rows": (asked(sent_by[rows]), rows(bulk, row, column)),
            "reduction": (len(others) * reduction(bulk, row, column), sum(reduction(bulk, row, j) for j in others)),
        }
        if algorithm == "oblivious":
            want["rows requests"] = 0, 0
        none = dict.fromkeys(want, (0, 0))
        got = {name: (counts.bytes_sent, counts.bytes_received) for name, counts in phases.items() if name != "status"}
        assert none | got == want
        assert c > 1 or "reduction" not in got


def from_block(bulk, row, column, what):
    """What the other ranks of a column want of block row `row`; nothing where it is another column's."""
    if bulk.column_of[row] != column:
        return 0
    return sum(what(bulk, other, row) for other in range(bulk.blocks) if other != row)


def requests_of(bulk, row, block):
    return ID * sum(len(bulk.distinct(mbs, block)) for mbs in bulk.layers(row))


def rows_of(bulk, row, block):
    return sum(bulk.rows(bulk.distinct(mbs, block)) for mbs in bulk.layers(row))


def block_of(bulk, row, block):
    return len(bulk.sampler.sizes) * bulk.rows(np.flatnonzero(bulk.block_of == block))


sent_by = {requested_rows: rows_of, broadcast_rows: block_of}


def test_batches_that_are_done_do_not_send_what_they_have():
    """Entry law, s = 64: batch 0 has 40 columns to draw from, so that its rank asks what is left; batch 1 has 1000."""
    few, many = np.tile(np.arange(40), 2), np.arange(1000)
    A = sp.Graph(np.concatenate([[0, 80, 1080], np.full(998, 1080)]), np.concatenate([few, many]))

    def body(comm):
        recorder = Recorder(comm)
        graph = sp.PartitionedGraph.from_graph(A, sp.ProcessGrid(recorder), partition=np.arange(1000) % 2)
        recorder.traffic.clear()
        bulk = sp.bulk_sample(graph, [0, 1], sp.LADIES([64]), batch_size=1)
        asked = recorder.traffic.phases["totals requests"].bytes_sent
        return len(bulk[0].layers[0].src_nodes), asked

    (_, asked_by_first), (chosen, asked_by_second) = run_threads(2, body)
    assert chosen >= 64
    assert asked_by_first >= 40 * 4
    assert asked_by_second < 64
