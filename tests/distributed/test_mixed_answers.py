"""LADIES by "column" where parts answer with rows, with sums or with edges: the bulk of one rank, bit for bit."""

from __future__ import annotations

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
    """What parts answer is drawn at random; counts how many pieces an extraction is put together from."""
    coin, counted = Random(0), Counter()
    cheaper_sums, stacked, extracted = sums._cheaper_sums, extraction._stacked, extraction._extracted

    def either_kind(frontier, held, src, edge_ids):
        kinds = [coin.choice((extraction.EDGES, extraction.ROWS)) for _ in held]
        return np.where(held, extraction.NOTHING, kinds).astype(np.int64)

    def either_answer(block, Q, rule, limit):
        return cheaper_sums(block, Q, rule, coin.choice((0, 1 << 60)))

    def counting(frontier, pieces, src):
        counted[len(pieces)] += 1
        return stacked(frontier, pieces, src)

    def from_all_parts(frontier, rows, *src):
        counted["all"] += rows.parts.all()
        return extracted(frontier, rows, *src)

    monkeypatch.setattr(extraction, "_kinds_to_ask_for", either_kind)
    monkeypatch.setattr(sums, "_cheaper_sums", either_answer)
    monkeypatch.setattr(extraction, "_stacked", counting)
    monkeypatch.setattr(extraction, "_extracted", from_all_parts)
    return counted


@pytest.mark.parametrize("hubs", [None, 400])
@pytest.mark.parametrize("law", ["norm", "squared_count"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_any_mix_gives_the_bulk_of_one_rank(pieces, graph, law, hubs):
    A, sampler, seeds = GRAPHS[graph](), sp.LADIES([9, 12, 20], law=law), np.arange(48)
    for epoch in range(8):
        call = {"batch_size": 6, "epoch": epoch, "edge_ids": epoch % 4 == 0}
        want = batches_of(sp.bulk_sample(A, seeds, sampler, **call))

        def body(comm, call=call):
            parts = sp.PartitionedGraph.from_graph(A, sp.ProcessGrid(comm, 1), algorithm="column", replicate_hubs=hubs)
            return batches_of(sp.bulk_sample(parts, seeds, sampler, **call))

        same_batches(gathered(run_threads(RANKS, body, TIMEOUT)), want)
    held_some = law == "squared_count" or graph.startswith("weighted")  # rows come before the extraction
    assert pieces["all"]
    assert pieces[1]
    assert pieces[2]
    assert (pieces[3] > 0) == held_some
