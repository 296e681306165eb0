"""Integers that may be a mask over the vertices are refused as seeds, wherever seeds are handed in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import spsample as sp
from spsample.comm import run_threads
from spsample.errors import InputError
from spsample.features import score
from spsample.planning import plan_bulk
from spsample.sampling.workload import sample_batches

N = 12
GRAPH = sp.Graph.from_edge_index(np.random.default_rng(0).integers(0, N, (2, 60)), num_nodes=N)
SAGE = sp.GraphSAGE([2])
MASK = np.zeros(N, np.uint8)
MASK[[3, 7]] = 1

ENTRIES = {
    "bulk_sample": lambda seeds: sp.bulk_sample(GRAPH, seeds, SAGE, batch_size=4),
    "BulkLoader": lambda seeds: sp.BulkLoader(GRAPH, seeds, SAGE, batch_size=4),
    "FactoredLoader": lambda seeds: run_threads(
        2, lambda comm: sp.FactoredLoader(sp.ReplicatedGraph(GRAPH, comm), seeds, SAGE, batch_size=4)
    ),
    "ranks": lambda seeds: run_threads(
        2, lambda comm: sp.bulk_sample(sp.ReplicatedGraph(GRAPH, comm), seeds, SAGE, batch_size=4)
    ),
    "score": lambda seeds: score("out-degree", GRAPH, seeds, SAGE, batch_size=4),
    "plan": lambda seeds: plan_bulk(GRAPH, seeds, SAGE, batch_size=4),
}
ALIKE = {
    "uint8": MASK,
    "int64": MASK.astype(np.int64),
    "a list": MASK.tolist(),
    "zeros": np.zeros(N, np.int32),
    "ones": np.ones(N, np.int64),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_both_readings_are_named(entry):
    with pytest.raises(InputError, match=r"^seeds: got 12 integers .* 0 or 1.*flatnonzero.*unique"):
        ENTRIES[entry](MASK)


TAKE_MASKS = ("BulkLoader", "FactoredLoader")


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_mask_is_named_where_one_is_taken(entry):
    expected = "vertex ids, or a mask over the vertices of dtype bool" if entry in TAKE_MASKS else "vertex ids"
    with pytest.raises(InputError, match=rf"; expected {expected}\. If it is a mask"):
        ENTRIES[entry](MASK)
    if entry in TAKE_MASKS:
        ENTRIES[entry](MASK.astype(bool))
        with pytest.raises(InputError, match=rf"a mask of shape \(11,\); expected {expected} and shape \(12,\)"):
            ENTRIES[entry](MASK[1:].astype(bool))
    else:
        with pytest.raises(InputError, match=r"^seeds: .*bool"):
            ENTRIES[entry](MASK.astype(bool))


@pytest.mark.parametrize("seeds", ALIKE.values(), ids=ALIKE)
def test_of_any_form(seeds):
    with pytest.raises(InputError, match=r"^seeds: got 12 integers"):
        sp.BulkLoader(GRAPH, seeds, SAGE, batch_size=4)


@pytest.mark.parametrize("given", [MASK, MASK.tolist(), MASK.astype(np.int64)], ids=["uint8", "a list", "int64"])
def test_input_nodes(given):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=torch.zeros(2, 1).long(), num_nodes=N)
    from spsample.pyg import NeighborLoader

    for one in (given, torch.tensor(given)):
        with pytest.raises(InputError, match=r"^input_nodes: got 12 integers"):
            NeighborLoader(data, [2], input_nodes=one)


def test_splits_of_a_data_set():
    planted = sp.load_dataset("planted:40")
    wrong = replace(planted, train_idx=(np.arange(40) % 3 == 0).astype(np.uint8))
    with pytest.raises(InputError, match=r"^train_idx: got 40 integers"):
        wrong.require_training_data()


def test_what_has_one_reading_is_taken():
    def seeds_of(given, graph=GRAPH):
        return sorted(i for batch in sp.BulkLoader(graph, given, SAGE, batch_size=4) for i in batch.seeds.tolist())

    assert seeds_of(MASK.astype(bool)) == [3, 7]
    assert seeds_of([0, 1]) == [0, 1]
    assert set(seeds_of(MASK[:-1])) == {0, 1}
    assert seeds_of([1, 0], sp.Graph([0, 1, 2], [1, 0])) == [0, 1]
    assert len(sp.bulk_sample(GRAPH, [*[0, 1] * 5, 0, 2], SAGE, batch_size=4)) == 3


def test_a_part_of_known_seeds_may_be_0_and_1_alone():
    """A bulk of a loader has as many seeds as there are vertices, all of them 0 or 1."""
    loader = sp.BulkLoader(GRAPH, [0, 1] * 6 + [5], SAGE, batch_size=4, bulk_size=3, shuffle=False, prefetch=0)
    assert [batch.seeds.tolist() for batch in loader] == [[0, 1], [0, 1], [0, 1], [5]]
    assert len(sample_batches(GRAPH, [0, 1] * 6, SAGE, batch_size=4)) == 3
