"""Arrays as the compiled core takes and returns them."""

import gc
import sys

import numpy as np
import pytest

core = pytest.importorskip("spsample._core")

INDPTR, BATCH_PTR = np.array([0, 2, 3, 3]), np.array([0, 2])
VERTICES, BATCH_IDS = np.array([1, 0]), np.array([0])


def taken(index, indptr=INDPTR, vertices=VERTICES, batch_ptr=BATCH_PTR):
    """Whole rows 1 and 0 of a graph of three vertices."""
    indices = np.array([1, 2, 0], index)
    return core.take_rows(indptr, indices, batch_ptr, vertices, BATCH_IDS, True)


def misaligned(array):
    """The same, one byte off."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    off = np.ndarray(array.shape, array.dtype, buffer=memory, offset=1)
    off[...] = array
    return off


def as_lists(result):
    return [array.tolist() for array in result]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("other", [np.int32, np.int64, np.uint16, ">i8", ">i4"])
def test_pointers_and_vertices_of_any_integer_type(index, other):
    result = taken(index, INDPTR.astype(other), VERTICES.astype(other), BATCH_PTR.astype(other))
    assert as_lists(result) == [[0, 3], [0, 1, 3], [0, 1, 2], [2, 0, 1]]
    assert result[2].dtype == index  # the indices alone say what the kernel works on


def test_arrays_of_any_layout():
    expected = as_lists(taken(np.int64))
    strided = np.repeat(INDPTR, 2)[::2]
    backwards = VERTICES[::-1].copy()[::-1]
    frozen = BATCH_PTR.copy()
    frozen.flags.writeable = False
    assert as_lists(taken(np.int64, strided, backwards, frozen)) == expected
    assert as_lists(taken(np.int64, list(INDPTR), VERTICES.tolist(), tuple(BATCH_PTR))) == expected
    for indices in (np.array([1, 2, 0], ">i8"), misaligned(np.array([1, 2, 0]))):
        assert as_lists(core.take_rows(INDPTR, indices, BATCH_PTR, VERTICES, BATCH_IDS, True)) == expected


def test_arrays_between_the_words_of_memory():
    """What a kernel loads lies at a multiple of its size: such an array is copied, and none is written to in place."""
    expected = as_lists(taken(np.int64))
    assert as_lists(taken(np.int64, misaligned(INDPTR), misaligned(VERTICES), misaligned(BATCH_PTR))) == expected
    columns = misaligned(np.array([2, 1, 2], np.int32))
    with pytest.raises(TypeError, match="incompatible function arguments"):
        core.compact(np.array([0, 1]), np.array([1], np.int32), np.array([0, 3]), columns, True)


@pytest.mark.parametrize(
    "indices", [np.array([1.0, 2, 0]), np.array([1, 2, 0], np.int16), [1, 2, 0], None, np.array(1)]
)
def test_indices_must_be_of_a_type_that_kernels_work_on(indices):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        core.take_rows(INDPTR, indices, BATCH_PTR, VERTICES, BATCH_IDS, True)


@pytest.mark.parametrize("vertices", [np.array([[1, 0]]), np.array(1), "10", None, [[1], [0, 1]], np.array(["a"])])
def test_what_is_no_vector_of_numbers_is_refused(vertices):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        taken(np.int64, vertices=vertices)


def test_columns_are_written_over_in_place_or_not_at_all():
    columns = np.array([2, 1, 2], np.int32)
    arguments = (np.array([0, 1]), np.array([1], np.int32), np.array([0, 3]))
    _, src = core.compact(*arguments, columns, True)
    assert (columns.tolist(), src.tolist()) == ([1, 0, 1], [1, 2])
    frozen = columns.copy()
    frozen.flags.writeable = False
    for refused in (frozen, np.repeat(columns, 2)[::2], columns.astype(">i4")):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            core.compact(*arguments, refused, True)


def test_results_own_their_memory():
    """An array, and a view of it, outlive the call and everything that was made in it."""
    wide = core.widened(np.arange(100_000, dtype=np.int32))  # large enough for the pool
    view = wide[50_000:]
    assert wide.flags.writeable
    assert wide.flags.c_contiguous
    assert wide.base is not None
    del wide
    gc.collect()
    again = core.widened(np.zeros(100_000, np.int32))
    assert view[0] == 50_000
    assert again[0] == 0


def test_coordinates_refuse_what_does_not_fit():
    ids, ptr = np.zeros(1, np.int32), np.array([0, 1])
    with pytest.raises(ValueError, match="indptrs: needs one array per array of indices"):
        core.coordinates([ptr], [ids, ids], ids)
    with pytest.raises(ValueError, match="indptr"):
        core.coordinates([np.array([0, 2])], [ids], ids)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        core.coordinates([ptr], [ids.astype(np.int64)], ids)


def test_sums_that_are_added_up_must_fit():
    ptr, columns, one = np.array([0, 2]), np.array([1, 3], np.int32), np.ones(2, np.uint8)
    for name, pieces, n in (
        ("pieces", [], 4),
        ("pieces", [(ptr, columns, one), (np.array([0, 1, 2]), columns, one)], 4),
        ("indptr", [(np.array([0, 3]), columns, one)], 4),
        ("numerators", [(ptr, columns, one[:1])], 4),
        ("numerators", [(ptr, columns, one.astype(np.int64))], 4),
        ("columns", [(ptr, columns, one)], 3),
        ("columns", [(ptr, columns[::-1].copy(), one)], 4),
        ("columns", [(ptr, np.array([-1, 3], np.int32), one)], 4),
        ("columns", [(ptr, np.array([1, 1], np.int32), one)], 4),
        ("num_columns", [(np.zeros(1, np.int64), columns[:0], one[:0])], -1),
    ):
        with pytest.raises(ValueError, match=f"^{name}:"):
            core.add_columns(pieces, n, 1)
    for power in (0, 3, -1):
        with pytest.raises(ValueError, match=r"^column_power:"):
            core.add_columns([(ptr, columns, one)], 4, power)


def test_arguments_are_not_kept():
    vertices = np.array([1, 0])
    before = sys.getrefcount(vertices)
    taken(np.int64, vertices=vertices)
    with pytest.raises(TypeError):
        taken(np.int16, vertices=vertices)
    assert sys.getrefcount(vertices) == before


@pytest.mark.parametrize("size", [0, 3])
def test_empty_results_are_arrays(size):
    wide = core.widened(np.zeros(size, np.int32))
    assert (wide.shape, wide.dtype) == ((size,), np.int64)
    assert core.edge_index(np.array([0, size]), np.zeros(size, np.int32)).shape == (2, size)
    assert core.philox(np.zeros((size, 4), np.uint32), 1, 2).shape == (size, 4)


def test_interleave_keeps_the_type():
    ptr = [np.array([0, 1]), np.array([0, 2])]
    for dtype in (np.int32, np.int64, np.uint64, np.float32, np.float64, np.bool_, np.uint8):
        parts = [np.array([1], dtype), np.array([0, 1], dtype)]
        out = core.interleave(parts, ptr)
        assert (out.dtype, out.tolist()) == (np.dtype(dtype), [1, 0, 1])
    with pytest.raises(ValueError, match="one type"):
        core.interleave([np.array([1], np.int32), np.array([0, 1])], ptr)
