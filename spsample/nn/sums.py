"""A weighted sum of rows for each target of a block, also by heads, and its way back; the weights of an attention."""

from __future__ import annotations

from dataclasses import dataclass
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
from spsample.nn.private import CoreFunction, is_untransformed
from spsample.nn.tensors import as_array, flat, new_numbers


def weighted_sums(indptr: Tensor, indices: Tensor, values: Tensor, h: Tensor) -> Tensor:
    """``A h``, of A as a `Block` has it: by the compiled core on the processor, by torch elsewhere.

    Both add up in the order of the entries. The gradient is ``A^T g``, added up in the order of the rows.
    """
    if len(indices) == 0:
        return h.new_zeros(len(indptr) - 1, 1) + h[:0].sum(0)  # of which what made h still gets a gradient, of 0
    if _is_for_core(indices, values, h):
        sums = Sums(as_array(indptr), as_array(indices), _numbers(values, h.dtype), len(h))
        return _WeightedSums.of(h, sums)
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
    both = _WeightedSums.of(h, sums)
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


class _WeightedSums(CoreFunction):
    """A h; its derivative is the same of A^T."""

    @staticmethod
    def forward(h: Tensor, sums: Sums) -> Tensor:
        return summed(sums, h.detach().contiguous().numpy())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.sums = inputs[1]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _WeightedSums.of(tangents[0], ctx.sums)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _WeightedSums.of(gradients[0], ctx.sums.transposed), None


def summed(sums: Sums, rows: NDArray[Any]) -> Tensor:
    """Return the sums of rows in C order, float32 or float64."""
    shape = sums.parts * (len(sums.indptr) - 1), rows.shape[1]
    out = new_numbers(shape) if rows.dtype == np.float32 else torch.empty(shape, dtype=torch.float64, device="cpu")
    add_up = getattr(compiled_core(), sums.kernel)
    add_up(sums.indptr, sums.columns, sums.values, rows.reshape(-1), rows.shape, out.numpy().reshape(-1))
    return out


# ------------------------------------------------------------------------------------ weights by entry and by head


class AttentionEntries:
    """The places of the entries of a sparse matrix.

    Parameters
    ----------
    indptr, indices
        int64: where the entries of each row begin, and their columns.
    num_columns
    """

    def __init__(self, indptr: Tensor, indices: Tensor, num_columns: int) -> None:
        self.indptr, self.indices, self.num_columns = indptr, indices, num_columns
        self.num_rows = len(indptr) - 1

    @lazily
    def numbered(self) -> Sums:
        """The matrix whose values are the entries' numbers; those of its transpose are their places in this one."""
        return Sums(as_array(self.indptr), as_array(self.indices), np.arange(len(self.indices)), self.num_columns)

    def rows(self) -> Tensor:
        """The row of each entry."""
        rows = torch.arange(self.num_rows, device=self.indptr.device)
        return torch.repeat_interleave(rows, self.indptr.diff(), output_size=len(self.indices))


def sum_by_head(entries: AttentionEntries, weights: Tensor, h: Tensor) -> Tensor:
    """Add up the rows of ``h`` at each row's entries, times a weight per head.

    Parameters
    ----------
    entries
    weights
        Shape ``(entries, heads)``.
    h
        Shape ``(columns, heads * dim)``; the result has as many columns.

    Examples
    --------
    >>> entries = AttentionEntries(torch.tensor([0, 2]), torch.tensor([0, 1]), 2)
    >>> sum_by_head(entries, torch.tensor([[1.0, 0.0], [2.0, 3.0]]), torch.tensor([[1.0, 1.0], [10.0, 10.0]]))
    tensor([[21., 30.]])
    """
    return _of(_SumByHead(entries, weights.shape[1]), weights, h)


def attention_weights(
    entries: AttentionEntries, source: Tensor, target: Tensor, attention: Tensor, slope: float
) -> Tensor:
    """Softmax over each row's entries of ``attention . leaky_relu(source + target)``, by heads: ``(entries, heads)``.

    Parameters
    ----------
    entries
    source, target
        Shapes ``(columns, heads * dim)`` and ``(rows, heads * dim)``.
    attention
        Shape ``(heads, dim)``.
    slope
        Of the leaky ReLU below 0.

    Examples
    --------
    >>> entries = AttentionEntries(torch.tensor([0, 2]), torch.tensor([0, 1]), 2)
    >>> attention_weights(entries, torch.tensor([[1.0], [1.0]]), torch.tensor([[2.0]]), torch.ones(1, 1), 0.2)
    tensor([[0.5000],
            [0.5000]])
    """
    return _of(_AttentionWeights(entries, len(attention), slope), source, target, attention)


def _of(operation: _SumByHead | _AttentionWeights, *tensors: Tensor) -> Tensor:
    """The result of a function of tensors that the compiled core has, with its gradient, and torch."""
    if not _are_for_core(*tensors):
        return operation.plain(*tensors)
    return _ByCore.of(operation, *tensors)


def _are_for_core(*tensors: Tensor) -> bool:
    """Return whether the compiled core takes these: of one type on the processor, outside of torch's transforms."""
    dtype = tensors[0].dtype
    if torch.compiler.is_compiling() or compiled_core() is None or dtype not in (torch.float32, torch.float64):
        return False
    is_alike = all(tensor.is_cpu and tensor.dtype == dtype for tensor in tensors)
    return is_alike and all(is_untransformed(tensor) and not has_tangent(tensor) for tensor in tensors)


class _ByCore(CoreFunction):
    """An operation by the compiled core; where its gradient is to be differentiated, too, that one is torch's."""

    @staticmethod
    def forward(operation: _SumByHead | _AttentionWeights, *tensors: Tensor) -> Tensor:
        return operation.forward(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.operation = inputs[0]
        ctx.save_for_backward(output, *inputs[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        result, *tensors = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return None, *ctx.operation.gradients(gradients[0], result, *tensors)
        tensors = [tensor.view_as(tensor) for tensor in tensors]  # a path from one to another counts once
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        computed = iter(torch.autograd.grad(ctx.operation.plain(*tensors), wanted, gradients[0], create_graph=True))
        return None, *(next(computed) if tensor.requires_grad else None for tensor in tensors)


@dataclass(frozen=True)
class _SumByHead:
    entries: AttentionEntries
    heads: int

    def forward(self, weights: Tensor, h: Tensor) -> Tensor:
        out = _like(h, self.entries.num_rows)
        entries = _tuple(self.entries.numbered, h, self.heads)
        compiled_core().sum_by_head(entries, *map(flat, (weights, h, out)))
        return out

    def gradients(self, gradient: Tensor, result: Tensor, weights: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        of_weights, of_h = _like(weights), _like(h)
        entries = _tuple(self.entries.numbered.transposed, h, self.heads)
        compiled_core().sum_by_head(entries, *map(flat, (weights, gradient, of_h, h, of_weights)))
        return of_weights, of_h

    def plain(self, weights: Tensor, h: Tensor) -> Tensor:
        by_head = h.reshape(len(h), self.heads, h.shape[1] // self.heads)
        sums = by_head.new_zeros(self.entries.num_rows, *by_head.shape[1:])
        messages = weights.unsqueeze(2) * by_head.index_select(0, self.entries.indices)
        return sums.index_add(0, self.entries.rows(), messages).flatten(1)


@dataclass(frozen=True)
class _AttentionWeights:
    entries: AttentionEntries
    heads: int
    slope: float

    def forward(self, source: Tensor, target: Tensor, attention: Tensor) -> Tensor:
        out = _like(source, len(self.entries.indices), self.heads)
        entries = _tuple(self.entries.numbered, source, self.heads)
        compiled_core().attention_weights(entries, *map(flat, (target, source, attention)), self.slope, flat(out))
        return out

    def gradients(self, gradient: Tensor, result: Tensor, source: Tensor, target: Tensor, attention: Tensor) -> Any:
        """The gradient of attention is a sum over all entries of slopes times rows: by targets, and by sources."""
        by_row = self.entries.numbered
        of_scores = _like(result)
        compiled_core().softmax_back(_tuple(by_row, source, self.heads), *map(flat, (result, gradient, of_scores)))
        of_target = self._slopes(by_row, of_scores, target, source)
        of_source = self._slopes(by_row.transposed, of_scores, source, target)
        of_attention = ((of_source * source).sum(0) + (of_target * target).sum(0)).view_as(attention)
        scale = attention.reshape(-1)
        return of_source * scale, of_target * scale, of_attention

    def _slopes(self, sums: Sums, of_scores: Tensor, own: Tensor, other: Tensor) -> Tensor:
        out = _like(own)
        entries = _tuple(sums, own, self.heads)
        compiled_core().sum_slopes(entries, *map(flat, (of_scores, own, other)), self.slope, flat(out))
        return out

    def plain(self, source: Tensor, target: Tensor, attention: Tensor) -> Tensor:
        rows = self.entries.rows()
        added = source.index_select(0, self.entries.indices) + target.index_select(0, rows)
        rectified = functional.leaky_relu(added, self.slope).reshape(len(rows), *attention.shape)
        return _softmax((rectified * attention).sum(-1), rows, self.entries.num_rows)


def _softmax(scores: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """By the rows of the entries."""
    places = rows.unsqueeze(1).expand_as(scores)
    empty = scores.new_zeros(num_rows, scores.shape[1])
    most = empty.scatter_reduce(0, places, scores.detach(), "amax", include_self=False)
    powers = (scores - most.index_select(0, rows)).exp()
    return powers / empty.scatter_add(0, places, powers).index_select(0, rows)


def _tuple(sums: Sums, rows: Tensor, heads: int) -> tuple[Any, ...]:
    """Return the arguments of the core for a numbered matrix."""
    return sums.indptr, sums.columns, sums.values, sums.num_columns, heads, rows.shape[1] // heads


def _like(rows: Tensor, *shape: int) -> Tensor:
    """Room for numbers of a tensor's type, of its shape but for what is given of another."""
    shape = (*shape, *rows.shape[len(shape) :])
    return new_numbers(shape) if rows.dtype == torch.float32 else rows.new_empty(shape)
