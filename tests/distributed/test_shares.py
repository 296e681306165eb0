"""Who fetches which rows in the published algorithm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partitioned_cases import divisors

from spsample.backends import StackedSelector
from spsample.distributed.placement import Placement, from_parts
from spsample.distributed.stages.fetch_plan import FetchPlan, Stages

GRIDS = [(p // c, c) for p in range(1, 25) for c in divisors(p)]


@pytest.mark.parametrize(("blocks", "columns"), GRIDS)
def test_each_block_has_one_stage_of_one_column(blocks, columns):
    assigned = Stages.of(Placement(np.arange(blocks + 1)), blocks, columns)
    stages = [assigned.blocks_of(j) for j in range(columns)]
    assert {len(of_column) for of_column in stages} == {-(-blocks // columns)}
    assert sorted(k for of_column in stages for k in of_column if k is not None) == list(range(blocks))


@pytest.mark.parametrize(("blocks", "columns"), [(b, c) for b, c in GRIDS if b % c == 0])
def test_published_order(blocks, columns):
    """In stage q, column j has block row k = j p/c^2 + q."""
    assigned = Stages.of(Placement(np.arange(blocks + 1)), blocks, columns)
    per_column = blocks // columns  # p / c^2
    for j in range(columns):
        assert assigned.blocks_of(j) == [j * per_column + q for q in range(per_column)]


@st.composite
def cases(draw):
    columns, blocks, n = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    batches = [rng.permutation(n)[: rng.integers(0, n + 1)] for _ in range(draw(st.integers(0, 4)))]
    placement = from_parts(rng.integers(0, blocks, n), blocks, np.dtype(np.int32))
    ptr = np.concatenate([[0], np.cumsum([len(b) for b in batches])]).astype(np.int64)
    vertices = np.concatenate([*batches, np.zeros(0, np.int64)]).astype(np.int32)
    return placement, blocks, columns, StackedSelector(ptr, vertices, np.arange(len(batches)))


@settings(max_examples=100)
@given(cases())
def test_shares_are_all_rows_once(case):
    placement, blocks, columns, Q = case
    assigned = Stages.of(placement, blocks, columns)
    plan = FetchPlan(Q, placement, assigned, columns)
    np.testing.assert_array_equal(np.sort(plan.vertices), np.unique(Q.vertices))
    np.testing.assert_array_equal(plan.vertices[plan.selector().vertices], Q.vertices)
    gathered = []
    for j in range(columns):
        own = plan.selector_of(j)
        distinct = plan.vertices[plan.bounds[j] : plan.bounds[j + 1]]
        fetched = [
            placement.vertices_of(k, np.dtype(np.int32))[plan.wanted(k)] for k in assigned.blocks_of(j) if k is not None
        ]
        np.testing.assert_array_equal(np.concatenate([*fetched, distinct[:0]]), distinct)
        assert len(own.vertices) == own.batch_ptr[-1] == plan.pairs[j]
        gathered.append(distinct[own.vertices])
    np.testing.assert_array_equal(np.concatenate(gathered)[plan.places], Q.vertices)
