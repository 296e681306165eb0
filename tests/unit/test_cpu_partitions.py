"""Kernels that make parts: equal to plain Python on small graphs, whatever the graph."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spsample.common.threads import compiled_core
from spsample.data.partition import ldg_parts, pagraph_parts

core = compiled_core()
pytestmark = pytest.mark.skipif(core is None, reason="the compiled core is missing")


@st.composite
def matrices(draw):
    """(indptr, indices, columns' dtype), loops and parallel edges among them."""
    n = draw(st.integers(1, 14))
    rows = [sorted(draw(st.lists(st.integers(0, n - 1), max_size=5))) for _ in range(n)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return indptr, np.array([vertex for row in rows for vertex in row], draw(st.sampled_from([np.int32, np.int64])))


@given(matrices(), st.data())
def test_pagraph_is_its_formula(matrix, data):
    indptr, indices = matrix
    n = len(indptr) - 1
    train = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True)), np.int64)
    num_parts, hops = data.draw(st.integers(1, len(train))), data.draw(st.integers(1, 4))
    made = core.pagraph_parts(indptr, indices, train, num_parts, hops)
    assert made.dtype == np.int32
    assert made.tolist() == pagraph_parts(indptr, indices, train, num_parts, hops).tolist()
    counts = np.bincount(made[train], minlength=num_parts)
    assert counts.max() - counts.min() <= 1


@given(matrices(), st.integers(1, 6))
def test_ldg_is_its_formula(matrix, num_parts):
    indptr, indices = matrix
    made = core.ldg_parts(indptr, indices.astype(np.int64), num_parts)
    assert made.dtype == np.int32
    assert made.tolist() == ldg_parts(indptr, indices.astype(np.int64), num_parts).tolist()
    assert np.bincount(made).max() <= -(-(len(indptr) - 1) // num_parts)


@pytest.mark.parametrize(
    ("train", "num_parts", "hops", "told"),
    [
        ([0, 2], 1, 1, "train: outside"),
        ([-1], 1, 1, "train: outside"),
        ([1, 1], 1, 1, "train: must be distinct"),
        ([0, 1], 3, 1, "num_parts: must"),
        ([0, 1], 0, 1, "num_parts: must"),
        ([0], 1, 0, "hops: must"),
    ],
)
def test_what_pagraph_parts_refuses(train, num_parts, hops, told):
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0])
    with pytest.raises((ValueError, IndexError), match=told):
        core.pagraph_parts(indptr, indices, np.array(train), num_parts, hops)


def test_ldg_parts_refuses_no_parts():
    with pytest.raises(ValueError, match="num_parts: must"):
        core.ldg_parts(np.array([0, 1, 2]), np.array([1, 0]), 0)
