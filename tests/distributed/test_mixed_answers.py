"""LADIES by "column" where parts answer with rows, with sums or with edges: the bulk of one rank, bit for bit."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random

import numpy as np
import pytest
from partitioned_cases import GRAPHS, batches_of, gathered, same_batches

import spsample as sp
from spsample.comm import run_threads
from spsample.distributed.column import extraction, sums

RANKS, TIMEOUT = 3, 120


@pytest.fixture
def pieces(monkeypatch):
    """What parts answer is drawn at random; notes how many pieces an extraction is put together from.

    Each rank draws from `drawn.coin`, which is its own: which thread runs first must not decide what is drawn.
    """
    drawn, noted = threading.local(), []
    cheaper_sums, stacked, extracted = sums._cheaper_sums, extraction._stacked, extraction._extracted

    def either_kind(frontier, held, src, edge_ids):
        kinds = [drawn.coin.choice((extraction.EDGES, extraction.ROWS)) for _ in held]
        return np.where(held, extraction.NOTHING, kinds).astype(np.int64)

    def either_answer(block, Q, rule, limit):
        return cheaper_sums(block, Q, rule, drawn.coin.choice((0, 1 << 60)))

    def counting(frontier, pieces, src):
        noted.append(len(pieces))
        return stacked(frontier, pieces, src)

    def from_all_parts(frontier, rows, *src):
        noted.extend(["all"] * int(rows.parts.all()))
        return extracted(frontier, rows, *src)

    monkeypatch.setattr(extraction, "_kinds_to_ask_for", either_kind)
    monkeypatch.setattr(sums, "_cheaper_sums", either_answer)
    monkeypatch.setattr(extraction, "_stacked", counting)
    monkeypatch.setattr(extraction, "_extracted", from_all_parts)
    return drawn, noted


@pytest.mark.parametrize("hubs", [None, 400])
@pytest.mark.parametrize("law", ["norm", "squared_count"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_any_mix_gives_the_bulk_of_one_rank(pieces, graph, law, hubs):
    drawn, noted = pieces
    A, sampler, seeds = GRAPHS[graph](), sp.LADIES([9, 12, 20], law=law), np.arange(48)
    for epoch in range(8):
        call = {"batch_size": 6, "epoch": epoch, "edge_ids": epoch % 4 == 0}
        want = batches_of(sp.bulk_sample(A, seeds, sampler, **call))

        def body(comm, call=call):
            drawn.coin = Random(comm.size * call["epoch"] + comm.rank)
            parts = sp.PartitionedGraph.from_graph(A, sp.ProcessGrid(comm, 1), algorithm="column", replicate_hubs=hubs)
            return batches_of(sp.bulk_sample(parts, seeds, sampler, **call))

        same_batches(gathered(run_threads(RANKS, body, TIMEOUT)), want)
    held_some = law == "squared_count" or graph.startswith("weighted")  # rows come before the extraction
    counted = Counter(noted)
    assert counted["all"]
    assert counted[1]
    assert counted[2]
    assert (counted[3] > 0) == held_some
