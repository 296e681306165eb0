"""The sparse algebra alone: rows of A, the product Q A, and whole rows as minibatches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import spsample as sp
from spsample.sparse import select_rows, spgemm

from ..case import Case, Plot, Side, Work
from ..inputs import Inputs
from ..ours import Calls, sampler_of
from .sampling import count_lines


def algebra(inputs: Inputs) -> Work:
    """What the cell's ``operation`` names; float32 values, but for whole rows, which have none."""
    return _OPERATIONS[inputs["operation"]](inputs)


def _row_selection(inputs: Inputs) -> Work:
    """A[rows] of all seeds."""
    rows, A = inputs.seeds.ravel(), _matrix(inputs)
    return lambda: {"batches": len(inputs.seeds), "edges": select_rows(A, rows).nnz}


def _product(inputs: Inputs) -> Work:
    """Q A, one entry in each row of Q, by the general product."""
    rows, A = inputs.seeds.ravel(), _matrix(inputs)
    ends, ones = np.arange(len(rows) + 1, dtype=np.int64), np.ones(len(rows), np.float32)
    Q = sp.CSRMatrix(ends, rows.astype(A.indices.dtype), ones, (len(rows), A.shape[0]))
    return lambda: {"batches": len(inputs.seeds), "edges": spgemm(Q, A).nnz}


def _whole_rows(inputs: Inputs) -> Work:
    """GraphSAGE with fanout -1: the rows, compacted to minibatches."""
    calls = Calls(inputs, sampler_of(inputs))
    return lambda: {"batches": calls.batches, "edges": sum(bulk.num_edges for bulk in calls())}


def _matrix(inputs: Inputs) -> sp.CSRMatrix:
    n = len(inputs.indptr) - 1
    return sp.CSRMatrix(inputs.indptr, inputs.indices, np.ones(len(inputs.indices), np.float32), (n, n))


_OPERATIONS: dict[str, Callable[[Inputs], Work]] = {
    "row-selection": _row_selection,
    "product": _product,
    "whole-rows": _whole_rows,
}
CASE = Case(
    about="A[rows], Q A and whole rows (fanout -1), beside SciPy, torch, DGL, pyg-lib and the limit of the memory.",
    claim="Rows are selected, multiplied and compacted several times as fast as by libraries that go batch by batch.",
    parameters={
        "graph": ("rmat:18,16",),
        "threads": (1, 2),
        "operation": tuple(_OPERATIONS),
        "batches": (64,),
        "batch_size": (1024,),
        "fanouts": ("-1",),
    },
    quick={"graph": ("rmat:16,16",), "threads": (1,), "batches": (16,)},
    sides=(Side("spsample", algebra),),
    job="{operation}",
    baselines=("SciPy", "DGL", "pyg-lib"),
    count=count_lines,
    few={"DGL": 12, "pyg-lib": 12},
    plots=(Plot("ms", x="operation", facet="threads", logarithmic=True, title="ms a batch"),),
)
