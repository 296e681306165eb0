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

__all__ = ["Sums", "summed", "weighted_sums", "with_targets"]


def weighted_sums(indptr: Tensor, indices: Tensor, values: Tensor, h: Tensor) -> Tensor:
    """``A h``, of A as a `Block` has it: by the compiled core on the processor, by torch elsewhere.

    Both add up in the order of the entries. The gradient is ``A^T g``, added up in the order of the rows.
    """
    if _is_for_core(indices, values, h):
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


def with_targets(indptr: Tensor, indices: Tensor, values: Tensor, h: Tensor) -> Tensor:
    """``[h_targets | A h]``, shape ``(num_dst, 2 dim)``, in one pass: the targets are the first rows of ``h``.

    It is the product with a matrix of two rows a target, one of which has a single 1, so that the gradient, too, is one
    sum for each row of ``h``.
    """
    count = len(indptr) - 1
    if count == 0 or not _is_for_core(indices, values, h):
        return torch.cat([h[:count], weighted_sums(indptr, indices, values, h)], 1)
    pointers, columns, weights = _interleaved(indptr.numpy(), indices.numpy(), values.to(h.dtype).numpy())
    both: Tensor = _WeightedSums.apply(h, Sums(pointers, columns, weights, len(h)))  # type: ignore[no-untyped-call]
    return both.view(count, 2 * h.shape[1])


def _interleaved(
    indptr: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """A matrix whose row 2 r takes row r of h, and row 2 r + 1 is row r of A: pointers, columns, values."""
    rows = np.arange(len(indptr) - 1)
    pointers = np.empty(2 * len(rows) + 1, np.int64)
    pointers[::2] = indptr + np.arange(len(indptr))
    pointers[1::2] = pointers[:-1:2] + 1
    of_targets = pointers[:-1:2]
    is_of_sum = np.ones(len(columns) + len(rows), bool)
    is_of_sum[of_targets] = False
    all_columns, all_values = np.empty(len(is_of_sum), np.int64), np.ones(len(is_of_sum), values.dtype)
    all_columns[of_targets], all_columns[is_of_sum] = rows, columns
    all_values[is_of_sum] = values
    return pointers, all_columns, all_values


def _is_for_core(indices: Tensor, values: Tensor, h: Tensor) -> bool:
    """Whether the compiled core takes these: on the processor, and no gradient of the values is wanted."""
    is_here = h.is_cpu and indices.is_cpu and not values.requires_grad
    return is_here and h.ndim == 2 and h.dtype in (torch.float32, torch.float64) and compiled_core() is not None


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
