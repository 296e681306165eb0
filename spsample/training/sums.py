"""A weighted sum of rows for each target of a block, and its way back."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from spsample.common.threads import compiled_core

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Sums", "summed", "weighted_sums"]


def weighted_sums(indptr: Tensor, indices: Tensor, values: Tensor, h: Tensor) -> Tensor:
    """``A h``, of A as a `Block` has it: by the compiled core on the processor, by torch elsewhere.

    Both add up in the order of the entries. The gradient is ``A^T g``, added up in the order of the rows.
    """
    is_here = h.is_cpu and indices.is_cpu and not values.requires_grad
    if is_here and h.ndim == 2 and h.dtype in (torch.float32, torch.float64) and compiled_core() is not None:
        sums = Sums(indptr.numpy(), indices.numpy(), values.to(h.dtype).numpy(), len(h))
        result: Tensor = _WeightedSums.apply(h, sums)  # type: ignore[no-untyped-call]
        return result
    return functional.embedding_bag(
        indices,
        h,
        indptr,
        mode="sum",
        per_sample_weights=values.to(h.dtype),
        include_last_offset=True,
    )


class Sums:
    """A sparse matrix of int64 pointers and columns."""

    def __init__(
        self, indptr: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[Any], num_columns: int
    ) -> None:
        self.indptr, self.columns, self.values = indptr, columns, values
        self.num_columns = num_columns

    @cached_property
    def transposed(self) -> Sums:
        """A^T as a matrix of its own; entries of a column in the order of the rows."""
        shape = len(self.indptr) - 1, self.num_columns
        by_column = sparse.csr_array((self.values, self.columns, self.indptr), shape).tocsc()
        pointers, rows = (np.asarray(a, np.int64) for a in (by_column.indptr, by_column.indices))
        return Sums(pointers, rows, by_column.data, shape[0])


class _WeightedSums(torch.autograd.Function):
    """A h; its derivative is the same of A^T."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, sums: Sums) -> Tensor:
        ctx.sums = sums
        return summed(sums, h.detach())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        result: Tensor = _WeightedSums.apply(gradients[0], ctx.sums.transposed)  # type: ignore[no-untyped-call]
        return result, None


def summed(sums: Sums, h: Tensor) -> Tensor:
    """A h, into memory that torch allocates."""
    h = h.contiguous()
    out = torch.empty(len(sums.indptr) - 1, h.shape[1], dtype=h.dtype)
    compiled_core().aggregate_rows(
        sums.indptr, sums.columns, sums.values, h.numpy().reshape(-1), tuple(h.shape), out.numpy().reshape(-1)
    )
    return out
