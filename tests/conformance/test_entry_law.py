"""The entry law composed of `entry_counts` and `locate`, as it runs where rows lie elsewhere, equals the kernel."""

from __future__ import annotations

import numpy as np
import pytest
from equality import edge_lists, examples, make_graph
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.backends import Draw, StackedSelector, available_backends
from spsample.distributed.rounds import draw_entries_in_rounds
from spsample.sparse.local import LocalFrontier


@st.composite
def frontiers(draw, num_nodes):
    """Distinct vertices for each of up to 4 batches, and one numerator for each."""
    vertex = st.integers(0, num_nodes - 1)
    batches = draw(st.lists(st.lists(vertex, max_size=8, unique=True), max_size=4))
    ptr = np.concatenate([[0], np.cumsum([len(b) for b in batches])]).astype(np.int64)
    vertices = np.array([v for b in batches for v in b], np.int32)
    ids = draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(batches), max_size=len(batches)))
    Q = StackedSelector(ptr, vertices, np.array(ids, np.int64))
    bits = draw(st.sampled_from([None, 1, 20, 45]))
    if bits is None:
        return Q, None
    q = draw(st.lists(st.integers(1, 2**bits), min_size=len(vertices), max_size=len(vertices)))
    return Q, np.array(q, np.uint64)


@pytest.mark.parametrize("backend", available_backends())
@given(edges=edge_lists(), size=st.integers(1, 12), replace=st.booleans(), data=st.data())
@settings(max_examples=examples(150))
def test_composed_equals_fused(backend, edges, size, replace, data):
    operand = make_graph(edges, "unweighted").operand(backend)
    Q, q = data.draw(frontiers(edges.num_nodes))
    draw = Draw((data.draw(st.integers(0, 2**32 - 1)), 7), data.draw(st.integers(0, 255)), size, replace)
    check(operand, Q, q, draw)


@pytest.mark.parametrize("backend", available_backends())
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_many_rounds(backend, size):
    """One column has nearly all entries, or all weight: only later rounds, without it, find the others."""
    hub = np.stack([np.zeros(400, np.int64), np.arange(400) % 4])
    few = np.stack([np.arange(1, 11), np.arange(10) % 5])
    graph = make_graph_of(np.concatenate([hub, few], axis=1))
    Q = StackedSelector(np.array([0, 5, 7]), np.array([0, 1, 2, 3, 4, 4, 0], np.int32), np.array([3, 9]))
    skewed = np.array([2**50, 2**50, 2**20, 2**20, 1, 1, 2**40], np.uint64)
    for q in (None, skewed):
        check(graph.operand(backend), Q, q, Draw((5, 6), 1, size))


@pytest.mark.parametrize("backend", available_backends())
@pytest.mark.parametrize("size", [7, 8, 9, 2**29])
def test_sizes_around_the_number_of_entries(backend, size):
    """8 entries on 6 columns: the support is taken whole without a draw, however large the size."""
    graph = make_graph_of(np.array([[1, 2, 3, 3, 3, 4, 5, 6], [0, 0, 0, 0, 0, 1, 1, 1]]))
    Q = StackedSelector(np.array([0, 2, 3, 3]), np.array([0, 1, 2], np.int32), np.array([3, 9, 10]))
    check(graph.operand(backend), Q, None, Draw((5, 6), 1, size))


class Counting(LocalFrontier):
    located = 0

    def locate(self, rows, offsets, exclude=None):
        self.located += len(rows)
        return super().locate(rows, offsets, exclude)


def test_a_huge_size_makes_no_draws():
    plain = make_graph_of(np.array([[1, 2, 3], [0, 0, 1]])).operand("reference")
    frontier = Counting(plain, StackedSelector(np.array([0, 2]), np.array([0, 1], np.int32), np.array([3])))
    sample = draw_entries_in_rounds(frontier, None, Draw((5, 6), 1, 2**29))
    assert sample.columns.tolist() == [1, 2, 3]
    assert frontier.located == 3


def test_draws_stop_soon_after_the_last_column_wanted():
    graph = sp.Graph.from_edge_index([np.arange(5000), np.zeros(5000, int)], num_nodes=5000)
    plain = graph.operand("reference")
    frontier = Counting(plain, StackedSelector(np.array([0, 1]), np.array([0], np.int32), np.array([3])))
    same(frontier, None, Draw((5, 6), 1, 400))
    assert frontier.located == 400 + 50 + 16


def make_graph_of(edge_index):
    return sp.Graph.from_edge_index(edge_index, num_nodes=12)


def check(operand, Q, q, draw):
    same(operand.frontier(Q), q, draw)


def same(frontier, q, draw):
    fused = frontier.draw_entries(q, draw)
    composed = draw_entries_in_rounds(frontier, q, draw)
    for name, one, other in zip(fused._fields, fused, composed, strict=True):
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, err_msg=name)
