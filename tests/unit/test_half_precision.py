"""Features and labels of half precision, also bfloat16, which NumPy has not."""

from __future__ import annotations

import numpy as np
import pytest

import spsample as sp
from spsample.errors import DTypeError

torch = pytest.importorskip("torch")

N = 30
GRAPH = sp.Graph.from_edge_index(np.random.default_rng(0).integers(0, N, (2, 120)), num_nodes=N)
X = torch.randn(N, 5, generator=torch.Generator().manual_seed(0))
SAGE = sp.GraphSAGE([2, 2], layout="subgraph")
WAYS = {"plain": {}, "bulk": {"fetch": "bulk"}, "in turn": {"prefetch": 0}, "device": {"device": "cpu"}}
HALVES = [torch.float16, torch.bfloat16]


def loader_of(x, y=None, **options):
    return sp.BulkLoader(GRAPH, range(N), SAGE, batch_size=8, features=x, labels=y, **options)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", HALVES)
def test_tensors_keep_their_dtype(dtype, way):
    x = X.to(dtype)
    for batch in loader_of(x, x[:, 0], **WAYS[way]):
        assert torch.equal(batch.x, x[torch.tensor(np.asarray(batch.src_nodes))])
        assert torch.equal(torch.as_tensor(batch.y), x[:, 0][torch.tensor(np.asarray(batch.seeds))])
        assert repr(batch).count("\n") == 0


@pytest.mark.parametrize("dtype", HALVES)
def test_in_pygs_data(dtype):
    pytest.importorskip("torch_geometric")
    x = X.to(dtype)
    for batch in loader_of(x, x).pyg():
        assert torch.equal(batch.x, x[batch.n_id])
        assert torch.equal(batch.y, x[batch.n_id])


@pytest.mark.parametrize("x", [X.bfloat16(), X.T.contiguous().bfloat16().T, X.bfloat16()[:, ::2]], ids="CFs")
def test_a_store_gives_float32(x):
    store = sp.FeatureStore(x)
    np.testing.assert_array_equal(store.gather(range(N)), x.float().numpy(), strict=True)
    assert (store.stored_dtype, "bfloat16" in repr(store)) == (np.float32, True)
    cached = sp.CachedFeatures(store, "200B", np.arange(N))
    np.testing.assert_array_equal(cached.gather(range(N)), x.float().numpy(), strict=True)
    for batch in loader_of(store):
        assert batch.x.dtype == np.float32


def test_every_bfloat16_number():
    words = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).reshape(-1, 8)
    finite = words.float().isfinite()
    store = sp.FeatureStore(words).gather(np.arange(len(words)))
    assert torch.equal(torch.from_numpy(store)[finite], words.float()[finite])


@pytest.mark.parametrize("to_sparse", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_are_refused_by_name(to_sparse):
    with pytest.raises(DTypeError, match=r"^features: got a sparse tensor .*to_dense.*scipy\.sparse\.csr_array"):
        loader_of(to_sparse(X))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        with pytest.raises(DTypeError, match=r"^x: got a sparse tensor"):
            sp.FeatureStore(to_sparse(X.to(dtype)))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X.bfloat16().requires_grad_(), r"^x: got a tensor that requires gradients"),
        (X[0].bfloat16(), r"^x: got shape \(5,\)"),
        (torch.zeros(3, 2, dtype=torch.bfloat16, device="meta"), r"^x: got an array on device meta"),
    ],
)
def test_refused(x, message):
    with pytest.raises(ValueError, match=message):
        sp.FeatureStore(x)
