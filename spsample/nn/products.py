"""Matrix products of layers: by oneDNN on the processor, where torch's own go to another library.

Gradients that are mostly zero are multiplied without their zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spsample.common.threads import compiled_core
from spsample.nn.private import CoreFunction, is_traced, is_untransformed, onednn_linear
from spsample.nn.tensors import flat, new_numbers, with_rounded_rows

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
        return _Linear.of(x, weight, bias)
    return functional.linear(x, weight, bias)


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    """Return whether this is a large product of float32 on the processor, and neither cast nor traced.

    Shapes that do not fit are left to torch, whose errors are clear; those of oneDNN are not.
    """
    onednn: Any = torch.backends.mkldnn
    return (
        not is_traced()
        and x.ndim == weight.ndim == 2
        and x.shape[0] * weight.numel() >= _LARGE
        and _is_plain(x, (len(x), weight.shape[1]))
        and _is_plain(weight, weight.shape)
        and not torch.is_autocast_enabled("cpu")
        and onednn.is_available()
        and onednn.enabled
    )


def _is_plain(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether this is a dense tensor of float32 and of a shape, on the processor."""
    is_float32 = tensor.dtype == torch.float32 and tensor.layout == torch.strided
    return tensor.is_cpu and is_float32 and tensor.shape == shape


class _Linear(CoreFunction):
    """x W^T + b. The weight's gradient is torch's own product: oneDNN's takes no longer sums over rows as they lie.

    oneDNN makes and keeps a kernel for each number of rows, and torch a result of each size: a few numbers of rows, in
    place of a new one in each step, make the process grow no more.
    """

    @staticmethod
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
        of_x = of_weight = of_bias = None
        if _leaves_out_zeros(gradient):
            of_x = times(gradient, weight) if needs_x else None
            if needs_weight:
                of_bias = torch.empty(gradient.shape[1], dtype=torch.float32, device="cpu") if needs_bias else None
                of_weight = outer_sums(gradient, x, of_bias)
        else:
            of_x = linear(gradient, weight.t()) if needs_x else None
            of_weight = torch.mm(x.t(), gradient).t() if needs_weight else None
        if needs_bias and of_bias is None:
            of_bias = gradient.sum(0)
        return of_x, of_weight, of_bias


def _leaves_out_zeros(gradient: Tensor) -> bool:
    """Return whether most of this is 0, and its products are neither differentiated nor mapped over."""
    if torch.is_grad_enabled() or is_traced() or not is_untransformed(gradient):
        return False
    return _is_plain(gradient, gradient.shape) and is_mostly_zero(gradient)


_MAX_DENSITY = 0.375
"""Share of numbers other than 0 up to which leaving out the others is faster, on every instruction set."""

_SAMPLED_ROWS = 64


def is_mostly_zero(gradient: Tensor) -> bool:
    """Return whether so much is zero, in some of the rows, that it pays to leave zeros out.

    Parameters
    ----------
    gradient
        float32, of shape ``(rows, width)``, on the processor.

    Examples
    --------
    >>> is_mostly_zero(torch.eye(4)), is_mostly_zero(torch.ones(4, 4))
    (True, False)
    """
    if compiled_core() is None or gradient.numel() == 0:
        return False
    some = gradient[:: max(len(gradient) // _SAMPLED_ROWS, 1)]
    return int(torch.count_nonzero(some)) <= _MAX_DENSITY * some.numel()


def times(gradient: Tensor, weight: Tensor) -> Tensor:
    """``G W`` without the zeros of G: of a weight of shape ``(width, dim)`` the gradient of the product's rows.

    Examples
    --------
    >>> times(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 3.0], [5.0, 7.0]]))
    tensor([[10., 14.]])
    """
    out = new_numbers((len(gradient), weight.shape[1]))
    compiled_core().multiply_sparse(flat(gradient), flat(weight), tuple(weight.shape), flat(out))
    return out


def outer_sums(gradient: Tensor, x: Tensor, of_columns: Tensor | None = None) -> Tensor:
    """``G^T x`` without the zeros of G: of rows of shape ``(rows, dim)`` the gradient of the product's weight.

    The sums of the columns of G, which are the gradient of a bias, go into ``of_columns``, float32 of shape
    ``(width,)``, in the same pass.

    Examples
    --------
    >>> of_columns = torch.empty(2)
    >>> outer_sums(torch.tensor([[0.0, 2.0], [0.0, 5.0]]), torch.tensor([[1.0], [3.0]]), of_columns), of_columns
    (tensor([[ 0.],
            [17.]]), tensor([0., 7.]))
    """
    out = torch.empty(gradient.shape[1], x.shape[1], dtype=torch.float32, device="cpu")
    columns = None if of_columns is None else flat(of_columns)
    compiled_core().sum_outer_products(flat(gradient), flat(x), tuple(out.shape), flat(out), columns)
    return out
