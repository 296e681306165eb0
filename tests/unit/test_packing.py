"""Objects as bytes: what is packed comes back in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spsample.common.packing import pack, unframed

ARRAYS = st.builds(
    lambda shape, kind, is_turned: np.arange(np.prod(shape)).reshape(shape).astype(kind).T[:: 1 + is_turned],
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.sampled_from(["f4", "i8", "u1", "?", "S3", "c16"]),
    st.booleans(),
) | st.builds(np.array, st.integers(-9, 9))
VALUES = st.recursive(
    ARRAYS | st.integers() | st.text() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(VALUES)
@settings(deadline=None)
def test_what_is_framed_comes_back(value: Any) -> None:
    whole = pack(value).framed()
    assert whole.dtype == np.uint8
    assert len(whole) % 64 == 0
    np.testing.assert_equal(unframed(whole), value)


@given(st.lists(ARRAYS, min_size=1), st.integers(0, 63))
@settings(deadline=None)
def test_arrays_lie_at_multiples_of_their_size_wherever_the_bytes_were(value: Any, shift: int) -> None:
    whole = pack(value).framed()
    room = np.zeros(len(whole) + 64, np.uint8)
    room[shift : shift + len(whole)] = whole
    back = unframed(room[shift : shift + len(whole)])
    np.testing.assert_equal(back, value)
    for array in back:
        assert array.flags.aligned


@pytest.mark.parametrize("take", [np.s_[::2], np.s_[:, 1::3], np.s_[::-1], np.s_[:0], np.s_[3, 4]])
def test_arrays_that_are_not_in_one_piece(take: Any) -> None:
    view = np.arange(48).reshape(6, 8)[take]
    np.testing.assert_array_equal(unframed(pack([view]).framed())[0], view)


def test_arrays_are_views_of_what_came() -> None:
    whole = pack(np.zeros(1000)).framed()
    back = unframed(whole)
    if whole.ctypes.data % 64 == 0:
        assert np.shares_memory(whole, back)
    assert len(whole) < 8 * 1000 + 1024


def test_tensors_travel_beside_the_pickle() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(3000.0)
    packed = pack({"x": tensor})
    assert len(packed.head) < 1000
    back = unframed(packed.framed())["x"]
    assert torch.equal(back, tensor)
    back += 1  # it may be written
