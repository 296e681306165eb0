"""Numbers that tell contents apart: of the compiled core, and without it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from spsample.common import contents
from spsample.common.contents import contents_of, is_mapped, words_sum
from spsample.common.threads import compiled_core
from spsample.sparse import set_num_threads

RNG = np.random.default_rng(0)
LENGTHS = [0, 1, 7, 8, 9, 4096, (1 << 20) - 1, (1 << 20) + 8, (5 << 20) + 3]


@pytest.mark.skipif(compiled_core() is None, reason="the compiled core is missing")
@pytest.mark.parametrize("length", LENGTHS)
def test_the_core_is_the_model(length):
    block = RNG.integers(0, 256, length, dtype=np.uint8)
    for threads in (1, 3):
        set_num_threads(threads)
        for first in (0, 5, 2**40):
            assert compiled_core().content_sum(block, first) == words_sum(block, first)
    set_num_threads(1)


@pytest.mark.skipif(compiled_core() is None, reason="the compiled core is missing")
def test_arrays_that_are_not_aligned():
    block = RNG.integers(0, 256, 1001, dtype=np.uint8)[1:]
    assert compiled_core().content_sum(block, 0) == words_sum(block.copy(), 0)


@settings(max_examples=200)
@given(st.data())
def test_one_changed_byte_always_shows(data):
    dtype = data.draw(st.sampled_from(["u1", "i4", "i8", "f2", "f4", "f8", "?"]))
    array = np.frombuffer(RNG.bytes(np.dtype(dtype).itemsize * data.draw(st.integers(1, 300))), dtype).copy()
    before = contents_of(array)
    place = data.draw(st.integers(0, array.nbytes - 1))
    array.view(np.uint8)[place] ^= data.draw(st.integers(1, 255))
    assert contents_of(array) != before


def test_many_arrays_that_differ_a_little():
    """All pairs of changed bits of a small array, exchanged neighbours, shifted contents: no two are alike."""
    base = np.arange(24, dtype=np.int64)
    arrays = [base]
    for one in range(0, 24 * 64, 5):
        for other in range(one, 24 * 64, 7):
            changed = base.copy()
            changed.view(np.uint64)[one // 64] ^= np.uint64(1 << one % 64)
            changed.view(np.uint64)[other // 64] ^= np.uint64(1 << other % 64)
            arrays.append(changed)
    arrays += [np.roll(base, k) for k in range(1, 24)]
    distinct = {array.tobytes() for array in arrays}
    assert len({contents_of(array) for array in arrays}) == len(distinct)


def test_what_counts():
    array = RNG.random((1000, 7)).astype(np.float32)
    same = [array.copy(), np.asfortranarray(array), array[::-1][::-1], np.ascontiguousarray(array.T).T]
    others = [array.T, array.astype(np.float64), array.reshape(7, 1000), array[:-1], -array]
    assert {contents_of(one) for one in same} == {contents_of(array)}
    assert contents_of(array) not in {contents_of(one) for one in others}
    assert contents_of(np.array(-0.0)) != contents_of(np.array(0.0))  # bits, not values
    assert contents_of(sparse.csr_array(array)) == contents_of(sparse.coo_array(array))
    assert contents_of(None) != contents_of(0)


@pytest.mark.parametrize("shape", [(5, 3), (100, 1001), (9, 1), (0, 4), (17, 2, 3)])
@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
def test_blocks_of_arrays_in_another_order(monkeypatch, shape, dtype):
    """Copied piece by piece, pieces of whole words."""
    monkeypatch.setattr(contents, "_BLOCK_BYTES", 64)
    array = RNG.integers(0, 100, shape).astype(dtype)
    assert contents_of(np.asfortranarray(array)) == contents_of(array)


def test_without_the_core(monkeypatch):
    array = RNG.random((999, 3))
    with_core = contents_of(array)
    monkeypatch.setattr(contents, "compiled_core", lambda: None)
    assert contents_of(array) == with_core


def test_maps(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert all(map(is_mapped, (mapped, mapped[1:], np.asarray(mapped), mapped.T)))
    assert not is_mapped(mapped.copy())
    assert not is_mapped(np.load(tmp_path / "x.npy"))
