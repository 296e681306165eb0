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

    from spsample.training.blocks import Block

__all__ = ["Sums", "summed", "weighted_sums"]


def weighted_sums(block: Block, h: Tensor) -> Tensor:
    """``A h``, for `Block.aggregate`: by the compiled core on the processor, by torch elsewhere.

    Both add up in the order of the entries. The gradient is ``A^T g``, added up in the order of the rows.
    """
    is_here = h.is_cpu and block.indices.is_cpu and not block.values.requires_grad
    if is_here and h.ndim == 2 and h.dtype in (torch.float32, torch.float64) and compiled_core() is not None:
        values = block.values.to(h.dtype).numpy()
        sums = Sums(block.indptr.numpy(), block.indices.numpy(), values, len(h))
        result: Tensor = _WeightedSums.apply(h, sums)  # type: ignore[no-untyped-call]
        return result
    return functional.embedding_bag(
        block.indices,
        h,
        block.indptr,
        mode="sum",
        per_sample_weights=block.values.to(h.dtype),
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
        """The same by column; entries of a column in the order of the rows."""
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
