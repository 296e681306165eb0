"""A weighted sum of rows for each target of a block, and its way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

from spsample.common.lazily import lazily
from spsample.common.threads import compiled_core
from spsample.nn.private import is_untransformed, one_by_one, signed
from spsample.nn.tensors import as_array, new_numbers


def weighted_sums(indptr: Tensor, indices: Tensor, values: Tensor, h: Tensor) -> Tensor:
    """``A h``, of A as a `Block` has it: by the compiled core on the processor, by torch elsewhere.

    Both add up in the order of the entries. The gradient is ``A^T g``, added up in the order of the rows.
    """
    if len(indices) == 0:
        return h.new_zeros(len(indptr) - 1, 1) + h[:0].sum(0)  # of which what made h still gets a gradient, of 0
    if _is_for_core(indices, values, h):
        sums = Sums(as_array(indptr), as_array(indices), _numbers(values, h.dtype), len(h))
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
    sums = _SumsWithTargets(as_array(indptr), as_array(indices), _numbers(values, h.dtype), len(h))
    both: Tensor = _WeightedSums.apply(h, sums)  # type: ignore[no-untyped-call]
    return both.view(count, 2 * h.shape[1])


def _is_for_core(indices: Tensor, values: Tensor, h: Tensor) -> bool:
    """Return whether the compiled core takes these: on the processor, and no gradient of the values is wanted."""
    is_here = h.is_cpu and indices.is_cpu and not is_differentiated(values) and is_untransformed(values)
    return is_here and h.ndim == 2 and h.dtype in (torch.float32, torch.float64) and compiled_core() is not None


def is_differentiated(values: Tensor) -> bool:
    """Return whether a derivative by the values is wanted, of either mode."""
    return values.requires_grad or has_tangent(values)


def has_tangent(tensor: Tensor) -> bool:
    """Return whether a derivative of forward mode is wanted."""
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def _numbers(values: Tensor, dtype: torch.dtype) -> NDArray[Any]:
    """The values as an array of the type of a tensor."""
    return as_array(values).astype(np.float32 if dtype == torch.float32 else np.float64, copy=False)


class Sums:
    """A sparse matrix of int64 pointers and columns; its kernel gives `parts` rows for each of the pointers' rows."""

    kernel, parts = "aggregate_rows", 1

    def __init__(
        self, indptr: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[Any], num_columns: int
    ) -> None:
        self.indptr, self.columns, self.values = indptr, columns, values
        self.num_columns = num_columns

    @lazily
    def transposed(self) -> Sums:
        """A^T as a matrix of its own; entries of a column in the order of the rows."""
        shape = len(self.indptr) - 1, self.num_columns
        by_column = sparse.csr_array((self.values, self.columns, self.indptr), shape).tocsc()
        pointers, rows = (np.asarray(a, np.int64) for a in (by_column.indptr, by_column.indices))
        return Sums(pointers, rows, by_column.data, shape[0])


class _SumsWithTargets(Sums):
    """The matrix whose row 2 r takes row r of h, and whose row 2 r + 1 is row r of A; it is made for the way back."""

    kernel, parts = "aggregate_with_targets", 2

    @lazily
    def transposed(self) -> Sums:
        """Its transpose as a matrix of its own."""
        return self._interleaved().transposed

    def _interleaved(self) -> Sums:
        indptr, columns, values = self.indptr, self.columns, self.values
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
        return Sums(pointers, all_columns, all_values, self.num_columns)


class _WeightedSums(torch.autograd.Function):
    """A h; its derivative is the same of A^T."""

    @staticmethod
    @signed
    def forward(h: Tensor, sums: Sums) -> Tensor:
        return summed(sums, h.detach().contiguous().numpy())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.sums = inputs[1]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        return one_by_one(_WeightedSums.apply, info, in_dims, *inputs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        result: Tensor = _WeightedSums.apply(tangents[0], ctx.sums)  # type: ignore[no-untyped-call]
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        result: Tensor = _WeightedSums.apply(gradients[0], ctx.sums.transposed)  # type: ignore[no-untyped-call]
        return result, None


def summed(sums: Sums, rows: NDArray[Any]) -> Tensor:
    """Return the sums of rows in C order, float32 or float64."""
    shape = sums.parts * (len(sums.indptr) - 1), rows.shape[1]
    out = new_numbers(shape) if rows.dtype == np.float32 else torch.empty(shape, dtype=torch.float64, device="cpu")
    add_up = getattr(compiled_core(), sums.kernel)
    add_up(sums.indptr, sums.columns, sums.values, rows.reshape(-1), rows.shape, out.numpy().reshape(-1))
    return out
