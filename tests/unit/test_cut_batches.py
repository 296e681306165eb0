"""Seeds cut into batches by the compiled core, as by NumPy."""

import numpy as np
import pytest

from spsample import _core
from spsample.sampling import seeds as module
from spsample.sampling.seeds import cut_batches, make_batches


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, 15, 16, 17, 100, 1000, 5000])
@pytest.mark.parametrize("count", [0, 1, 16, 17, 999, 1000, 1001, 4000])
def test_the_core_cuts_as_numpy_does(count, batch_size, wide):
    rng = np.random.default_rng(count + batch_size)
    for limit in (3 * count + 1, 2**31 - 1):
        seeds = rng.integers(0, limit, count)
        for given in (seeds, rng.permutation(4000)[:count]):
            expected, found = cut_batches(given, batch_size, 7, wide), _core.cut_batches(given, batch_size, 7, wide)
            for one, other in zip(found[:3], expected[:3], strict=True):
                assert one.dtype == other.dtype
                assert np.array_equal(one, other)
            assert found[3] == expected[3]


@pytest.mark.parametrize("places", [(0, 15), (14, 15), (0, 1), (3, 99), (98, 99)])
@pytest.mark.parametrize("size", [16, 100])
def test_a_repeat_is_found_anywhere(places, size):
    seeds = np.arange(2 * size)[::-1].copy()
    first, second = (min(place, size - 1) for place in places)
    if first == second:
        first -= 1
    seeds[size + second] = seeds[size + first]
    assert _core.cut_batches(seeds, size, 0, False)[3]
    assert not _core.cut_batches(seeds, size + first + 1, 0, False)[3] or first + 1 > size


def test_ids_of_64_bits_are_told_apart_by_all_their_bits():
    seeds = np.array([5, 5 + 2**32, 5 + 2**40, *range(100, 120)])
    assert not _core.cut_batches(seeds, 100, 0, True)[3]


@pytest.mark.parametrize("bad", [-1, 2**31])
def test_ids_that_do_not_fit_are_refused(bad):
    with pytest.raises(ValueError, match="seeds: an id is negative, or too large"):
        _core.cut_batches(np.array([0, bad]), 2, 0, False)
    with pytest.raises(ValueError, match="batch_size"):
        _core.cut_batches(np.array([0]), 0, 0, False)


def test_batches_are_the_same_without_the_core(monkeypatch):
    seeds = np.random.default_rng(0).integers(0, 50, 90)
    expected = make_batches(seeds, 20, 3, np.dtype(np.int32), "merge")
    monkeypatch.setattr(module, "compiled_core", lambda: None)
    found = make_batches(seeds, 20, 3, np.dtype(np.int32), "merge")
    for one, other in zip(found.selector, expected.selector, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(found.inverse, expected.inverse)


def test_ids_below():
    assert _core.ids_below(np.zeros(0, np.int64), 1)
    assert _core.ids_below(np.array([0, 4]), 5)
    assert not _core.ids_below(np.array([0, 5]), 5)
    assert not _core.ids_below(np.array([-1, 4]), 5)
