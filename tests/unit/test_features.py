"""Feature stores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from spsample.errors import DTypeError, InputError
from spsample.features import FeatureSource, FeatureStore

X = np.arange(12).reshape(4, 3)


@pytest.mark.parametrize(
    "x",
    [
        X,
        X.astype(np.float64),
        X.astype(np.float16),
        X.astype(np.uint8),
        np.asfortranarray(X),
        X.tolist(),
        sparse.csr_array(X),
        sparse.csc_matrix(X),
        sparse.coo_array(X.astype(np.uint8)),
    ],
    ids=lambda x: f"{type(x).__name__}-{getattr(x, 'dtype', '')}",
)
def test_gather(x):
    store = FeatureStore(x)
    assert isinstance(store, FeatureSource)
    assert (store.num_rows, store.dim) == (4, 3)
    rows = store.gather([3, 0, 3])
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert rows.flags.writeable
    assert rows.tolist() == X[[3, 0, 3]].tolist()
    assert store.gather([]).shape == (0, 3)
    assert "4 x 3" in repr(store)


def test_gather_copies():
    x = X.astype(np.float32)
    FeatureStore(x).gather(np.arange(4))[:] = 0
    assert x.tolist() == X.tolist()


def test_gather_from_a_memory_map(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    store = FeatureStore(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert store.gather(np.array([2], dtype=np.int32)).tolist() == [[6, 7, 8]]


def test_gather_from_a_tensor():
    torch = pytest.importorskip("torch")
    assert FeatureStore(torch.eye(2)).gather([1]).tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([0, 4], InputError, "ids: got 4 at position 1"),
        ([-1], InputError, "ids: got -1 at position 0"),
        ([[0]], InputError, "ids"),
        ([0.0], DTypeError, "ids"),
        (np.array([True]), DTypeError, "ids"),
    ],
)
def test_gather_refuses(ids, error, words):
    with pytest.raises(error) as caught:
        FeatureStore(X).gather(ids)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("x", "error"),
    [
        (np.arange(3), InputError),
        (np.ones((2, 2, 2)), InputError),
        (np.ones((2, 2), dtype=complex), DTypeError),
        (np.array([["a"]]), DTypeError),
        (None, DTypeError),
    ],
)
def test_store_refuses(x, error):
    with pytest.raises(error) as caught:
        FeatureStore(x)
    assert caught.value.argument == "x"
