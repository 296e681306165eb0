"""SciPy: LADIES and FastGCN as their authors publish them, row selection and the sparse product.

LADIES (Zou et al., NeurIPS 2019) and FastGCN (Chen et al., ICLR 2018) are written from the published algorithms, one
batch at a time, a product for each layer, with SciPy's and NumPy's own operations. float32 data and
`numpy.random.Generator` are what makes them fastest here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs


def ladies(inputs: Inputs) -> Work:
    """p_v ~ sum_i A_iv^2 over the frontier."""
    return _layerwise(inputs, lambda rows: np.asarray(rows.multiply(rows).sum(axis=0)).ravel())


def ladies_squared_count(inputs: Inputs) -> Work:
    """p_v ~ the squared number of edges from the frontier to v."""
    return _layerwise(inputs, lambda rows: np.asarray(rows.sum(axis=0)).ravel().astype(np.float64) ** 2)


def fastgcn(inputs: Inputs) -> Work:
    """p_v ~ the squared norm of column v of A, computed beforehand."""
    A = _matrix(inputs)
    weights = np.asarray(A.multiply(A).sum(axis=0)).ravel()
    return _layerwise(inputs, lambda _: weights)


def _layerwise(inputs: Inputs, weights_of: Callable[[Any], Any]) -> Work:
    A, rng = _matrix(inputs), np.random.default_rng(0)

    def edges_of(frontier: np.ndarray) -> int:
        edges = 0
        for size in inputs.fanouts:
            rows = A[frontier, :]
            weights = weights_of(rows).astype(np.float64)
            frontier, adj = _draw(rows, weights / weights.sum(), size, rng)
            edges += adj.nnz
        return edges

    def work() -> Figures:
        return {"batches": len(inputs.seeds), "edges": sum(map(edges_of, inputs.seeds))}

    return work


def _draw(rows: Any, p: np.ndarray, size: int, rng: np.random.Generator) -> tuple[np.ndarray, Any]:
    """Columns without replacement; the rows' entries in them, over p, with rows that add up to 1."""
    size = min(int(np.count_nonzero(p)), size)
    chosen = rng.choice(len(p), size, p=p, replace=False)
    adj = rows[:, chosen].multiply(1 / p[chosen]).tocsr()
    sums = np.asarray(adj.sum(axis=1)).ravel()
    adj.data *= np.repeat(np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0), np.diff(adj.indptr))
    return chosen, adj


def row_selection(inputs: Inputs) -> Work:
    """A[rows] of all seeds."""
    rows, A = inputs.seeds.ravel(), _matrix(inputs)
    return lambda: {"batches": len(inputs.seeds), "edges": A[rows].nnz}


def product(inputs: Inputs) -> Work:
    """Q A, one entry in each row of Q."""
    from scipy.sparse import csr_array

    rows, A = inputs.seeds.ravel(), _matrix(inputs)
    Q = csr_array((np.ones(len(rows), np.float32), rows, np.arange(len(rows) + 1)), shape=(len(rows), A.shape[0]))
    return lambda: {"batches": len(inputs.seeds), "edges": (Q @ A).nnz}


def _matrix(inputs: Inputs) -> Any:
    from scipy.sparse import csr_array

    n = len(inputs.indptr) - 1
    return csr_array((np.ones(len(inputs.indices), np.float32), inputs.indices, inputs.indptr), shape=(n, n))


_SIDE, _ONE = "SciPy, one thread", {"threads": 1}  # whatever the others have
PEER = Peer(
    "SciPy",
    ("scipy", "numpy"),
    {
        "ladies": (Side(_SIDE, ladies, _ONE),),
        "ladies-squared-count": (Side(_SIDE, ladies_squared_count, _ONE),),
        "fastgcn": (Side(_SIDE, fastgcn, _ONE),),
        "row-selection": (Side(_SIDE, row_selection, _ONE),),
        "product": (Side(_SIDE, product, _ONE),),
    },
)
