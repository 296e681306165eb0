"""Kernels that make parts: equal to plain Python on small graphs, whatever the graph."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spsample.common.threads import compiled_core

core = compiled_core()
pytestmark = pytest.mark.skipif(core is None, reason="the compiled core is missing")


def ldg_parts(indptr: np.ndarray, indices: np.ndarray, num_parts: int) -> np.ndarray:
    """Assign vertices as the compiled core does, by NumPy."""
    n = len(indptr) - 1
    parts = np.full(n, -1, np.int32)
    room = [-(-n // num_parts)] * num_parts
    for v in range(n):
        near = parts[indices[indptr[v] : indptr[v + 1]]]
        counts = np.bincount(near[near >= 0], minlength=num_parts).tolist()
        best = max(range(num_parts), key=lambda i: (counts[i] * room[i], room[i], -i))
        parts[v] = best
        room[best] -= 1
    return parts


def pagraph_parts(indptr: np.ndarray, indices: np.ndarray, train: np.ndarray, num_parts: int, hops: int) -> np.ndarray:
    """Assign vertices as the compiled core does, in plain Python: slow, and as the formula reads."""
    parts = np.full(len(indptr) - 1, -1, np.int32)
    trains: list[set[int]] = [set() for _ in range(num_parts)]
    needed: list[set[int]] = [set() for _ in range(num_parts)]
    for v in train.tolist():
        near = _in_neighbourhood(indptr, indices, v, hops)
        larger = len(train) % num_parts - sum(len(members) > len(train) // num_parts for members in trains)

        def score(i: int, near: set[int] = near) -> Fraction:
            lacks = Fraction(len(train), num_parts) - len(trains[i])
            return (len(trains[i] & near) + 1) * lacks / (len(needed[i]) + 1)

        share = len(train) // num_parts + (larger > 0)
        open_parts = [i for i in range(num_parts) if len(trains[i]) < share]
        best = max(open_parts, key=lambda i: (score(i), -len(trains[i]), -i))
        parts[v] = best
        trains[best].add(v)
        needed[best] |= near
    _put_others(indptr, parts, needed)
    return parts


def _in_neighbourhood(indptr: np.ndarray, indices: np.ndarray, vertex: int, hops: int) -> set[int]:
    """The vertices that lead to `vertex` by at most `hops` edges, itself among them."""
    near = last = {vertex}
    for _ in range(hops):
        last = {int(u) for v in last for u in indices[indptr[v] : indptr[v + 1]]} - near
        near = near | last
    return near


def _put_others(indptr: np.ndarray, parts: np.ndarray, needed: list[set[int]]) -> None:
    """Put each vertex without a part to one that needs it, the one with the fewest rows and entries."""
    size = np.diff(indptr) + 1
    load = [int(size[parts == i].sum()) for i in range(len(needed))]
    for v in np.flatnonzero(parts < 0).tolist():
        best = min(range(len(needed)), key=lambda i: (v not in needed[i], load[i], i))
        parts[v] = best
        load[best] += int(size[v])


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
