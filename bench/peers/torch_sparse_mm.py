"""torch: the sparse product of CSR tensors."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from peers.task import Inputs, Options, Task, Work

PACKAGES = ("torch",)


def product(inputs: Inputs, options: Options) -> Work:
    """`torch.sparse.mm(Q, A)`, one entry per row of Q; int64 indices, as torch's CPU product wants them."""
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
    n, rows = len(inputs.indptr) - 1, inputs.seeds(options).ravel()
    A = _csr(inputs.indptr, inputs.indices64, (n, n))
    Q = _csr(np.arange(len(rows) + 1), rows, (len(rows), n))

    def work() -> dict[str, float]:
        edges = torch.sparse.mm(Q, A).values().numel()
        return {"batches": options["batches"], "rows": len(rows), "edges": edges}

    return work


def _csr(indptr: np.ndarray, indices: np.ndarray, shape: tuple[int, int]) -> torch.Tensor:
    ends, columns = torch.from_numpy(indptr), torch.from_numpy(indices)
    return torch.sparse_csr_tensor(ends, columns, torch.ones(len(columns)), size=shape, check_invariants=False)


TASKS: dict[str, Task] = {"product": product}
