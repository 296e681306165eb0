"""Matrix products of layers: by oneDNN on the processor, where torch's own go to another library.

Gradients that are mostly zero go back by `spsample.nn.sparse_products`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spsample.nn.private import has_onednn_linear, is_traced, is_untransformed, onednn_linear
from spsample.nn.sparse_products import is_mostly_zero, outer_and_column_sums, outer_sums, times
from spsample.nn.tensors import with_rounded_rows
from spsample.nn.transforms import one_by_one, signed

_LARGE = 1 << 24
"""Multiplications from which on a product repays the kernel that oneDNN makes for each new number of rows (0.5 ms)."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b``, as `torch.nn.functional.linear`; equal up to rounding.

    Parameters
    ----------
    x, weight, bias
        Shapes ``(rows, in_dim)``, ``(out_dim, in_dim)`` and ``(out_dim,)``.

    Examples
    --------
    >>> linear(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 7.]])
    """
    if _is_for_onednn(x, weight) and (bias is None or _is_plain(bias, weight.shape[:1])):
        result: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return functional.linear(x, weight, bias)


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    """Return whether this is a large product of float32 on the processor, and neither cast nor traced.

    Shapes that do not fit are left to torch, whose errors say so; those of oneDNN do not.
    """
    return (
        not is_traced()
        and x.ndim == weight.ndim == 2
        and x.shape[0] * weight.numel() >= _LARGE
        and _is_plain(x, (len(x), weight.shape[1]))
        and _is_plain(weight, weight.shape)
        and not torch.is_autocast_enabled("cpu")
        and _onednn_is_there()
    )


def _is_plain(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether this is a dense tensor of float32 and of a shape, on the processor."""
    is_float32 = tensor.dtype == torch.float32 and tensor.layout == torch.strided
    return tensor.is_cpu and is_float32 and tensor.shape == shape


def _onednn_is_there() -> bool:
    backend: Any = torch.backends.mkldnn
    return bool(backend.is_available() and backend.enabled) and has_onednn_linear()


class _Linear(torch.autograd.Function):
    """x W^T + b. The weight's gradient is torch's own product: oneDNN's takes no longer sums over rows as they lie.

    oneDNN makes and keeps a kernel for each number of rows, and torch a result of each size: a few numbers of rows, in
    place of a new one in each step, make the process grow no more.
    """

    @staticmethod
    @signed
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        in_order = None if bias is None else bias.contiguous()  # oneDNN reads it as if it were
        rounded = with_rounded_rows(x.contiguous())
        result = onednn_linear(rounded, weight, in_order)
        return result if len(rounded) == len(x) else result.resize_(len(x), len(weight))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias = inputs
        ctx.has_bias = bias is not None
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        return one_by_one(_Linear.apply, info, in_dims, *inputs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = tangents
        zero = x.new_zeros(len(x), len(weight))
        parts = (
            zero if of_x is None else linear(of_x, weight),
            zero if of_weight is None else linear(x, of_weight),
            zero if of_bias is None else of_bias,
        )
        return parts[0] + parts[1] + parts[2]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient, (needs_x, needs_weight, needs_bias) = gradients[0], ctx.needs_input_grad
        needs_bias = needs_bias and ctx.has_bias
        leaves_out_zeros = _leaves_out_zeros(gradient)
        of_x, of_weight = (times, outer_sums) if leaves_out_zeros else (_times, _outer_sums)
        gradient_of_x = of_x(gradient, weight) if needs_x else None
        if leaves_out_zeros and needs_weight and needs_bias:
            return gradient_of_x, *outer_and_column_sums(gradient, x)
        return (
            gradient_of_x,
            of_weight(gradient, x) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
        )


def _leaves_out_zeros(gradient: Tensor) -> bool:
    """Return whether most of this is 0, and its products are neither differentiated nor mapped over."""
    if torch.is_grad_enabled() or is_traced() or not is_untransformed(gradient):
        return False
    return _is_plain(gradient, gradient.shape) and is_mostly_zero(gradient)


def _times(gradient: Tensor, weight: Tensor) -> Tensor:
    return linear(gradient, weight.t())


def _outer_sums(gradient: Tensor, x: Tensor) -> Tensor:
    return torch.mm(x.t(), gradient).t()
