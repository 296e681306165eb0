"""torch: the sparse product of CSR tensors, with int64 indices, as its CPU product wants them; rows by number."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs
from ..rows import draws_of, table_of


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


def gather(inputs: Inputs) -> Work:
    """`index_select` into the same memory, of the type that is stored; or a copy to float32 after it."""
    import torch

    torch.set_num_threads(inputs["threads"])
    x, draws = torch.from_numpy(table_of(inputs)), torch.from_numpy(draws_of(inputs))
    out, wide = torch.empty((draws.shape[1], x.shape[1]), dtype=x.dtype), torch.empty(draws.shape[1], x.shape[1])

    def work() -> Figures:
        for ids in draws:
            torch.index_select(x, 0, ids, out=out)
            if inputs["result"] == "float32":
                wide.copy_(out)
        return {"batches": len(draws), "rows": draws.numel()}

    return work


_GATHER = (
    Side("torch index_select, as stored", gather, {"result": "stored"}),
    Side("torch index_select, then float32", gather, {"result": "float32"}),
)
PEER = Peer("torch", ("torch",), {"product": (Side("torch.sparse.mm", product),), "gather": _GATHER})
