"""From a list of seeds to batches of distinct ones."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spsample.errors import InputError
from spsample.sampling.seeds import make_batches


def batches_of(seeds, batch_size, dtype=np.int64):
    return make_batches(np.asarray(seeds, np.int64), batch_size, 7, np.dtype(dtype), "merge")


@given(
    st.lists(st.one_of(st.integers(0, 9), st.integers(2**48 - 3, 2**48), st.just(2**62)), max_size=60),
    st.integers(1, 70),
)
def test_batches_hold_distinct_seeds_in_order_of_first_appearance(seeds, batch_size):
    made = batches_of(seeds, batch_size)
    parts = [seeds[first : first + batch_size] for first in range(0, len(seeds), batch_size)]
    distinct = [list(dict.fromkeys(part)) for part in parts]
    Q = made.selector
    assert Q.vertices.tolist() == list(itertools.chain(*distinct))
    assert Q.batch_ptr.tolist() == np.cumsum([0, *map(len, distinct)]).tolist()
    assert Q.batch_ids.tolist() == [7 + i for i in range(len(parts))]
    assert made.given_ptr.tolist() == np.cumsum([0, *map(len, parts)]).tolist()
    assert made.inverse.tolist() == [
        kinds.index(seed) for part, kinds in zip(parts, distinct, strict=True) for seed in part
    ]
    assert (made.merged_inverse is None) == (distinct == parts)
    assert Q.batch_ptr.dtype == made.inverse.dtype == np.int64


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 12))
def test_the_first_seed_that_is_repeated_is_named(seeds, batch_size):
    seen = [(i, s) for i, s in enumerate(seeds) if s in seeds[i // batch_size * batch_size : i]]
    if not seen:
        assert make_batches(np.array(seeds, np.int64), batch_size, 0, np.dtype(np.int32), "error") is not None
        return
    position, seed = seen[0]
    with pytest.raises(InputError, match=rf"{seed} again at position {position}, in batch {position // batch_size} "):
        make_batches(np.array(seeds, np.int64), batch_size, 0, np.dtype(np.int32), "error")


def steps(batches):
    """Calls of functions, of Python's and of C's, that merging takes where each of so many batches repeats seeds."""
    seeds = np.random.default_rng(0).integers(0, 20, batches * 32)
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        batches_of(seeds, 32)
    finally:
        sys.setprofile(before)
    return count


def test_merging_takes_the_same_steps_whatever_the_number_of_batches():
    steps(2)
    assert steps(500) == steps(5)
