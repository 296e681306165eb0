"""SciPy: the reference methods of LADIES and FastGCN, row selection and the sparse product."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

from peers.task import Inputs, Options, Task, Work
from scipy_methods import fastgcn_reference, ladies_reference

PACKAGES = ("scipy", "numpy")


@cache
def _matrix(inputs: Inputs) -> csr_matrix:
    n = len(inputs.indptr) - 1
    return csr_matrix((np.ones(len(inputs.indices), np.float32), inputs.indices, inputs.indptr), shape=(n, n))


def ladies(inputs: Inputs, options: Options) -> Work:
    """The authors' method by the `law` of the options, batch after batch."""
    A, rng = _matrix(inputs), np.random.default_rng(0)
    sample = partial(_ladies, A, options["fanouts"], options["law"], rng)
    return partial(_batches, sample, inputs.seeds(options))


def _ladies(A: Any, sizes: list[int], law: Any, rng: np.random.Generator, seeds: NDArray[np.int64]) -> Any:
    return ladies_reference(A, seeds, sizes, law, rng)


def fastgcn(inputs: Inputs, options: Options) -> Work:
    """FastGCN's method, batch after batch; its distribution is computed beforehand."""
    A, rng = _matrix(inputs), np.random.default_rng(0)
    weight = np.bincount(inputs.indices, minlength=A.shape[1]).astype(np.float64)
    sample = partial(_fastgcn, A, weight / weight.sum(), options["fanouts"], rng)
    return partial(_batches, sample, inputs.seeds(options))


def _fastgcn(
    A: Any, p: NDArray[np.float64], sizes: list[int], rng: np.random.Generator, seeds: NDArray[np.int64]
) -> Any:
    return fastgcn_reference(A, p, seeds, sizes, rng)


def _batches(sample: Callable[[NDArray[np.int64]], Any], seeds: NDArray[np.int64]) -> dict[str, float]:
    edges = sum(matrix.nnz for batch in seeds for matrix, _ in sample(batch))
    return {"batches": len(seeds), "edges": edges}


def row_selection(inputs: Inputs, options: Options) -> Work:
    """A[rows] of all seeds."""
    rows, A = inputs.seeds(options).ravel(), _matrix(inputs)
    return lambda: {"batches": options["batches"], "rows": len(rows), "edges": A[rows].nnz}


def product(inputs: Inputs, options: Options) -> Work:
    """Q @ A, one entry per row of Q."""
    rows, A = inputs.seeds(options).ravel(), _matrix(inputs)
    Q = csr_array((np.ones(len(rows), np.float32), rows, np.arange(len(rows) + 1)), shape=(len(rows), A.shape[0]))
    B = csr_array(A)
    return lambda: {"batches": options["batches"], "rows": len(rows), "edges": (Q @ B).nnz}


TASKS: dict[str, Task] = {"ladies": ladies, "fastgcn": fastgcn, "row_selection": row_selection, "product": product}
