"""What a plan says of cooperative batches, beside counts of real ones."""

from __future__ import annotations

import os

import numpy as np
import pytest

import spsample as sp
from cooperative_plan import compare
from traces import Cell, cell

ROWS_AND_EDGES = ("independent rows", "independent edges", "rows", "edges")
BYTES = ("independent bytes", "bytes")


def small_cell(name, sampler, batch_size):
    graph = sp.load_dataset(name).graph
    return Cell(graph, np.flatnonzero(np.diff(graph.indptr)), sampler, batch_size)


def assert_near(one, *, rows_and_edges=0.05, bytes_=0.05, most_edges=0.1):
    bounds = dict.fromkeys(ROWS_AND_EDGES, rows_and_edges) | dict.fromkeys(BYTES, bytes_) | {"most edges": most_edges}
    assert bounds.keys() == one.errors.keys()
    far = {name: error for name, error in one.errors.items() if abs(error) > bounds[name]}
    assert not far


@pytest.mark.parametrize("owners", ["hash", "metis"])
@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("scale", [10, 11, 12])
def test_a_forecast_is_near_what_is_counted(scale, p, owners):
    whole = small_cell(f"rmat:{scale},8", sp.GraphSAGE([10, 5]), 32)
    assert_near(compare("", "GraphSAGE", whole, p, owners))


@pytest.mark.parametrize(
    "sampler",
    [
        sp.GraphSAGE([8, 5, 3]),
        sp.GraphSAGE([5, -1]),
        sp.GraphSAGE([10, 5], layout="subgraph"),
        sp.LADIES([64, 64]),
        sp.FastGCN([64, 64]),
    ],
    ids=["three layers", "whole rows", "subgraph", "LADIES", "FastGCN"],
)
def test_of_every_sampler(sampler):
    assert_near(compare("", "", small_cell("rmat:12,8", sampler, 32), 4, "hash"))


def test_a_share_falls_as_counted_where_an_epoch_is_one_step():
    whole = small_cell("rmat:10,8", sp.GraphSAGE([10, 5]), 10**6)
    one = compare("", "", whole, 4, "hash")
    assert one.counted.rows < 0.4
    assert_near(one)


@pytest.mark.skipif("SPSAMPLE_DATA" not in os.environ, reason="SPSAMPLE_DATA names no folder of real graphs")
@pytest.mark.parametrize("p", [2, 4, 8])
def test_on_tolokers(p):
    assert_near(compare("tolokers", "GraphSAGE", cell("tolokers", "GraphSAGE"), p, "hash"))
