"""Sums with a weight per entry and head, and the weights of an attention, by the compiled core or by torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from spsample.common.lazily import lazily
from spsample.common.threads import compiled_core
from spsample.nn.private import is_untransformed, signed
from spsample.nn.sums import Sums, has_tangent
from spsample.nn.tensors import as_array, new_numbers


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


class _Operation(Protocol):
    """A function of tensors that the compiled core has, with its gradient, and torch."""

    def forward(self, *tensors: Any) -> Tensor: ...

    def gradients(self, gradient: Tensor, result: Tensor, *tensors: Any) -> tuple[Tensor, ...]: ...

    def plain(self, *tensors: Any) -> Tensor: ...


def _of(operation: _Operation, *tensors: Tensor) -> Tensor:
    if not _is_for_core(*tensors):
        return operation.plain(*tensors)
    result: Tensor = _ByCore.apply(operation, *tensors)  # type: ignore[no-untyped-call]
    return result


def _is_for_core(*tensors: Tensor) -> bool:
    """Return whether the compiled core takes these: of one type on the processor, outside of torch's transforms."""
    if (
        torch.compiler.is_compiling()
        or compiled_core() is None
        or tensors[0].dtype not in (torch.float32, torch.float64)
    ):
        return False
    is_alike = all(tensor.is_cpu and tensor.dtype == tensors[0].dtype for tensor in tensors)
    return is_alike and all(is_untransformed(tensor) and not has_tangent(tensor) for tensor in tensors)


class _ByCore(torch.autograd.Function):
    """An operation by the compiled core; where its gradient is to be differentiated, too, that one is torch's."""

    @staticmethod
    @signed
    def forward(operation: _Operation, *tensors: Tensor) -> Tensor:
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
        compiled_core().sum_by_head(entries, *map(_flat, (weights, h, out)))
        return out

    def gradients(self, gradient: Tensor, result: Tensor, weights: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        of_weights, of_h = _like(weights), _like(h)
        entries = _tuple(self.entries.numbered.transposed, h, self.heads)
        compiled_core().sum_by_head(entries, *map(_flat, (weights, gradient, of_h, h, of_weights)))
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
        compiled_core().attention_weights(entries, *map(_flat, (target, source, attention)), self.slope, _flat(out))
        return out

    def gradients(self, gradient: Tensor, result: Tensor, source: Tensor, target: Tensor, attention: Tensor) -> Any:
        """The gradient of attention is a sum over all entries of slopes times rows: by targets, and by sources."""
        by_row = self.entries.numbered
        of_scores = _like(result)
        compiled_core().softmax_back(_tuple(by_row, source, self.heads), *map(_flat, (result, gradient, of_scores)))
        of_target = self._slopes(by_row, of_scores, target, source)
        of_source = self._slopes(by_row.transposed, of_scores, source, target)
        of_attention = ((of_source * source).sum(0) + (of_target * target).sum(0)).view_as(attention)
        scale = attention.reshape(-1)
        return of_source * scale, of_target * scale, of_attention

    def _slopes(self, sums: Sums, of_scores: Tensor, own: Tensor, other: Tensor) -> Tensor:
        out = _like(own)
        entries = _tuple(sums, own, self.heads)
        compiled_core().sum_slopes(entries, *map(_flat, (of_scores, own, other)), self.slope, _flat(out))
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


def _flat(tensor: Tensor) -> NDArray[Any]:
    numbers: NDArray[Any] = tensor.detach().contiguous().numpy().reshape(-1)
    return numbers
