"""SciPy: the reference methods of LADIES and FastGCN, row selection and the sparse product."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from peers.task import Inputs, Options, Task, Work
from scipy_methods import ReferenceLayer, column_distribution, fastgcn_reference, ladies_reference

PACKAGES = ("scipy", "numpy")


Sample = Callable[[NDArray[np.int64]], list[ReferenceLayer]]


@cache
def _matrix(inputs: Inputs) -> csr_array:
    n = len(inputs.indptr) - 1
    return csr_array((np.ones(len(inputs.indices), np.float32), inputs.indices, inputs.indptr), shape=(n, n))


def ladies(inputs: Inputs, options: Options) -> Work:
    """The authors' method by the `law` of the options, batch after batch."""
    A, rng = _matrix(inputs), np.random.default_rng(0)
    sizes, law = options["fanouts"], options["law"]
    return _batches(lambda seeds: ladies_reference(A, seeds, sizes, law, rng), inputs.seeds(options))


def fastgcn(inputs: Inputs, options: Options) -> Work:
    """FastGCN's method, batch after batch; its distribution is computed beforehand."""
    A, rng = _matrix(inputs), np.random.default_rng(0)
    p, sizes = column_distribution(A), options["fanouts"]
    return _batches(lambda seeds: fastgcn_reference(A, p, seeds, sizes, rng), inputs.seeds(options))


def _batches(sample: Sample, seeds: NDArray[np.int64]) -> Work:
    def work() -> dict[str, float]:
        edges = sum(layer.adj.nnz for batch in seeds for layer in sample(batch))
        return {"batches": len(seeds), "edges": edges}

    return work


def row_selection(inputs: Inputs, options: Options) -> Work:
    """A[rows] of all seeds."""
    rows, A = inputs.seeds(options).ravel(), _matrix(inputs)
    return lambda: {"batches": options["batches"], "rows": len(rows), "edges": A[rows].nnz}


def product(inputs: Inputs, options: Options) -> Work:
    """Q @ A, one entry per row of Q."""
    rows, A = inputs.seeds(options).ravel(), _matrix(inputs)
    Q = csr_array((np.ones(len(rows), np.float32), rows, np.arange(len(rows) + 1)), shape=(len(rows), A.shape[0]))
    return lambda: {"batches": options["batches"], "rows": len(rows), "edges": (Q @ A).nnz}


TASKS: dict[str, Task] = {"ladies": ladies, "fastgcn": fastgcn, "row_selection": row_selection, "product": product}
