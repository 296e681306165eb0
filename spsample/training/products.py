"""Matrix products of layers: by oneDNN on the processor, where torch's own go to another library.

Gradients that are mostly zero, as they are behind ReLU and dropout, go back by `SparseGradient`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spsample.training.dropout import RectifiedDropout, Rows, drop_rectified_, scaled_where_positive
from spsample.training.sparse_products import SparseGradient
from spsample.training.transforms import one_by_one, signed

__all__ = ["linear", "linear_rectified"]

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
    if _is_for_onednn(x, weight, bias):
        result: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return functional.linear(x, weight, bias)


def linear_rectified(
    x: Tensor, weight: Tensor, bias: Tensor | None, after: RectifiedDropout, rows: Rows | None = None
) -> Tensor:
    """``after(linear(x, weight, bias), rows)``, to the bit, where it can in the memory of the product.

    The gradient of what is 0 afterwards is left out of the products on the way back.

    Examples
    --------
    >>> linear_rectified(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [-3.0, 2.0]]), None, RectifiedDropout(0.0))
    tensor([[3., 0.]])
    """
    if _is_for_onednn(x, weight, bias) and after.is_in_one_pass(x, rows):
        result: Tensor = _LinearRectified.apply(x, weight, bias, after.p, after.drawn_key())  # type: ignore[no-untyped-call]
        return result
    unfused: Tensor = after(linear(x, weight, bias), rows)
    return unfused


def _is_for_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether this is a large product of float32 on the processor, and neither cast nor traced.

    What does not fit together is torch's to refuse: oneDNN does not say what is wrong.
    """
    return (
        not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        and x.ndim == weight.ndim == 2
        and x.shape[0] * weight.numel() >= _LARGE
        and _is_plain(x, (len(x), weight.shape[1]))
        and _is_plain(weight, weight.shape)
        and (bias is None or _is_plain(bias, weight.shape[:1]))
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and _onednn_is_there()
    )


def _is_plain(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether this is a dense tensor of float32 and of a shape, on the processor."""
    is_float32 = tensor.dtype == torch.float32 and tensor.layout == torch.strided
    return tensor.is_cpu and is_float32 and tensor.shape == shape


def _onednn_is_there() -> bool:
    backend: Any = torch.backends.mkldnn
    return bool(backend.is_available() and backend.enabled) and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    in_order = None if bias is None else bias.contiguous()  # oneDNN reads it as if it were
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight, in_order, "none", [], "")
    return result


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Those of rows, weight and bias, where they are wanted."""


def _dense_gradients(gradient: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool, bool]) -> Gradients:
    """The weight's is torch's own product: oneDNN's takes no longer sums over rows as they lie."""
    return (
        linear(gradient, weight.t()) if needs[0] else None,
        torch.mm(x.t(), gradient).t() if needs[1] else None,
        gradient.sum(0) if needs[2] else None,
    )


def _sparse_gradients(gradient: SparseGradient, x: Tensor, weight: Tensor, needs: tuple[bool, bool, bool]) -> Gradients:
    of_weight, of_bias = gradient.outer_sums(x, needs[2]) if needs[1] or needs[2] else (None, None)
    return gradient.times(weight) if needs[0] else None, of_weight, of_bias


def _tangent(x: Tensor, weight: Tensor, tangents: tuple[Tensor | None, ...]) -> Tensor:
    """The tangent of the product, of those of rows, weight and bias."""
    of_x, of_weight, of_bias = tangents
    zero = x.new_zeros(len(x), len(weight))
    parts = (
        zero if of_x is None else linear(of_x, weight),
        zero if of_weight is None else linear(x, of_weight),
        zero if of_bias is None else of_bias,
    )
    return parts[0] + parts[1] + parts[2]


class _Linear(torch.autograd.Function):
    """x W^T + b."""

    @staticmethod
    @signed
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        return one_by_one(_Linear.apply, info, in_dims, *inputs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        x, weight = ctx.saved_tensors
        return _tangent(x, weight, tangents)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        x, weight = ctx.saved_tensors
        sparse = SparseGradient(gradients[0])
        if not torch.is_grad_enabled() and sparse.is_sparse():
            return _sparse_gradients(sparse, x, weight, ctx.needs_input_grad)
        return _dense_gradients(gradients[0], x, weight, ctx.needs_input_grad)


class _LinearRectified(torch.autograd.Function):
    """ReLU and dropout under a key of x W^T + b; what is above 0 afterwards passes gradients on."""

    @staticmethod
    @signed
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, p: float, key: Tensor) -> Tensor:
        return drop_rectified_(_product(x, weight, bias), p, key)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, p, _ = inputs
        ctx.scale = 1 / (1 - p)
        ctx.save_for_backward(x, weight, output)
        ctx.save_for_forward(x, weight, output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        return one_by_one(_LinearRectified.apply, info, in_dims, *inputs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        x, weight, output = ctx.saved_tensors
        return scaled_where_positive(_tangent(x, weight, tangents[:3]), output, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, output), needs = ctx.saved_tensors, ctx.needs_input_grad[:3]
        sparse = SparseGradient(gradients[0], output, ctx.scale)
        if not torch.is_grad_enabled() and sparse.is_sparse():
            return (*_sparse_gradients(sparse, x, weight, needs), None, None)
        masked = scaled_where_positive(gradients[0], output, ctx.scale)
        return (*_dense_gradients(masked, x, weight, needs), None, None)
