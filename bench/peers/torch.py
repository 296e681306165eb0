"""torch: the sparse product of CSR tensors, with int64 indices, as its CPU product wants them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs


def product(inputs: Inputs) -> Work:
    """`torch.sparse.mm(Q, A)`, one entry in each row of Q."""
    import torch

    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
    n, rows = len(inputs.indptr) - 1, inputs.seeds.ravel()
    A = _csr(inputs.indptr, inputs.indices64, (n, n))
    Q = _csr(np.arange(len(rows) + 1), rows, (len(rows), n))

    def work() -> Figures:
        return {"batches": len(inputs.seeds), "edges": torch.sparse.mm(Q, A).values().numel()}

    return work


def _csr(indptr: np.ndarray, indices: np.ndarray, shape: tuple[int, int]) -> Any:
    import torch

    ends, columns = torch.from_numpy(indptr), torch.from_numpy(indices)
    return torch.sparse_csr_tensor(ends, columns, torch.ones(len(columns)), size=shape, check_invariants=False)


PEER = Peer("torch", ("torch",), {"product": (Side("torch.sparse.mm", product),)})
