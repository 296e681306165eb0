"""Numbering range by range of vertices: what compaction does where a batch's bit set would not stay in the cache."""

from __future__ import annotations

import numpy as np
import pytest
from each_set import CPU, SETS, assert_compacts, each_set, instruction_set, pointers
from equality import examples, threads
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.backends import StackedSelector

pytestmark = pytest.mark.sanitize

FAR = 1 << 25
"""Ids up to here need more than any second-level cache."""


def distinct_ids(seed, limit, count):
    """In any order."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.unique(rng.integers(0, limit, 2 * count)))[:count]


# Largest id and number of entries, by the number of vertices in a range: 2^16, 2^17, 2^18, 2^19.
SIZES = [(FAR - 1, 9000), (FAR, 5000), (1 << 26, 5000), (1 << 27, 5000), (2**31 - 2, 70_000)]


@each_set
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(("largest", "size"), SIZES)
def test_compact_by_ranges(name, index, largest, size):
    """Odd and even numbers of entries; few targets, many, none; ids beside the ends of ranges; nothing but targets."""
    rng = np.random.default_rng(largest)
    ends = np.arange(0, largest, 1 << 16)
    ids = np.unique(np.concatenate([rng.integers(0, largest + 1, size), ends, ends[1:] - 1, [largest]]))
    targets = [rng.permutation(ids)[: len(ids) // d] for d in (7, 1, 2)] + [ids[:0], ids]
    columns = [
        rng.choice(ids, size),
        rng.choice(ids, size + 1),
        np.append(ids, largest),
        rng.choice(ids, size),
        targets[1],
    ]
    for include_targets in (False, True):
        assert_compacts(name, targets, columns, index, include_targets)


@each_set
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_full_words_and_lonely_vertices(name, index):
    """Words of 1 to 64 vertices, some or all of them targets, beside ranges of one vertex."""
    rng = np.random.default_rng(1)
    words = np.concatenate([64 * w + rng.permutation(64)[: w % 65] for w in range(3000)]) + (5 << 16)
    dense = np.arange(1 << 16, (1 << 16) + 9000)
    lonely = np.arange(0, FAR, 1 << 18) + 63
    columns = [rng.permutation(np.concatenate([part, lonely])) for part in (words, dense, np.append(dense, words))]
    targets = [rng.permutation(words)[::5], dense[::2], np.append(dense, words)]
    assert_compacts(name, targets, columns, index, True)


@each_set
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_hubs(name, index):
    """All entries lead to one vertex, or to two of them: a target, a new one, the last one of all."""
    hub = np.full(9001, FAR - 1)
    columns = [hub, hub, np.where(np.arange(9001) % 2, FAR - 1, 0), hub]
    targets = [np.array([FAR - 1]), np.array([0, 77]), np.array([0]), np.array([], np.int64)]
    assert_compacts(name, targets, columns, index, True)


@given(data=st.data())
@settings(max_examples=examples(40))
def test_drawn_batches(data):
    """By bits, by ranges of each length and by a hash table, one after the other, on 1 to 4 threads."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    index = data.draw(st.sampled_from([np.int32, np.int64]))
    limits = st.sampled_from([1, 1000, 1 << 16, FAR, 1 << 28, 2**31 - 1])
    batches = data.draw(
        st.lists(
            st.tuples(limits, st.integers(0, 12_000), st.integers(0, 9000), st.integers(1, 4)), min_size=1, max_size=5
        )
    )
    columns = [(limit * rng.random(size) ** skew).astype(np.int64) for limit, size, _, skew in batches]
    targets = [
        rng.permutation(np.unique((limit * rng.random(count) ** skew).astype(np.int64)))
        for limit, _, count, skew in batches
    ]
    include = data.draw(st.booleans())
    with threads(data.draw(st.integers(1, 4))):
        for name in SETS:
            assert_compacts(name, targets, columns, index, include)


def test_ids_beyond_the_ranges():
    """64-bit ids that no number of ranges reaches."""
    rng = np.random.default_rng(3)
    ids = np.unique(rng.integers(0, 1 << 47, 80_000))
    for name in SETS:
        assert_compacts(name, [ids[::9]], [rng.permutation(ids)], np.int64, True)


@each_set
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("apart", [1, 8000])
def test_equal_targets_are_refused(name, index, apart):
    targets = distinct_ids(4, FAR, 9000)
    targets[500 + apart] = targets[500]
    columns = np.arange(9000, dtype=index)
    Q = StackedSelector(pointers([9000]), targets.astype(index), np.arange(1))
    with instruction_set(name), pytest.raises(ValueError, match="distinct within a batch"):
        CPU.compact(Q, pointers([9000]), columns, True)


@each_set
def test_batches_after_a_refused_one(name):
    """Working memory is no worse for it."""
    test_equal_targets_are_refused(name, np.int32, 1)
    ids = distinct_ids(5, FAR, 9000)
    assert_compacts(name, [ids[:500], ids[:10]], [ids, ids[::-1]], np.int32, True)


def test_memory_does_not_grow_with_the_largest_id():
    """4 bytes an entry, 8 a target and a range's table, not half a byte for each of 2^31 vertices."""
    ids = np.random.default_rng(6).permutation(1 << 17).astype(np.int32) * 16_000
    Q = StackedSelector(pointers([1000]), ids[:1000], np.arange(1))
    sp.clear_pool()
    with sp.sparse.measured_pool() as memory:
        CPU.compact(Q, pointers([len(ids)]), ids.copy(), True)
    assert memory.peak_bytes < 8 << 20
