"""Torch's private names that the layers use, and support of its function transforms by an `autograd.Function`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def is_seen_by_a_mode() -> bool:
    """Return whether a dispatch mode, as of a trace, sees each call of an operator; True where that is not known.

    Examples
    --------
    >>> is_seen_by_a_mode()
    False
    """
    count: Any = getattr(torch._C, "_len_torch_dispatch_stack", None)
    return count is None or count() > 0


def is_traced() -> bool:
    """Return whether calls become a graph, which is to hold for other numbers of rows and other values.

    Examples
    --------
    >>> is_traced()
    False
    """
    is_in_jit: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return is_in_jit or torch.compiler.is_compiling() or is_seen_by_a_mode()


def is_untransformed(tensor: Tensor) -> bool:
    """Return whether this is torch's own tensor with numbers of its own, not one that a transform batches or traces.

    False where that is not known.

    Examples
    --------
    >>> is_untransformed(torch.ones(2))
    True
    >>> torch.vmap(lambda member: member * is_untransformed(member))(torch.ones(2))
    tensor([0., 0.])
    """
    functorch: Any = getattr(torch._C, "_functorch", None)
    tests = [getattr(functorch, name, None) for name in ("is_functorch_wrapped_tensor", "is_legacy_batchedtensor")]
    return type(tensor) is Tensor and all(test is not None and not test(tensor) for test in tests)


def outside_of_transforms() -> AbstractContextManager[Any]:
    """Within it, what is made of untransformed tensors is untransformed; where torch has no such thing it does nothing.

    Examples
    --------
    >>> def made(x):
    ...     with outside_of_transforms():
    ...         return x * is_untransformed(torch.empty(0))
    >>> torch.func.jvp(made, (torch.ones(2),), (torch.ones(2),))[0]
    tensor([1., 1.])
    """
    guard: Any = getattr(torch._C, "_DisableFuncTorch", nullcontext)
    context: AbstractContextManager[Any] = guard()
    return context


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x W^T + b`` by oneDNN; by torch's own choice of library where it has no such operator.

    Examples
    --------
    >>> onednn_linear(torch.ones(1, 2), torch.tensor([[1.0, 2.0]]), None)
    tensor([[3.]])
    """
    product: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if product is None:
        return functional.linear(x, weight, bias)
    result: Tensor = product(x, weight, bias, "none", [], "")
    return result


class CoreFunction(torch.autograd.Function):
    """Base of Functions that call the compiled core: with a typed `of`, and their results under `torch.vmap`.

    Examples
    --------
    >>> class Doubled(CoreFunction):
    ...     @staticmethod
    ...     def forward(x):
    ...         return torch.from_numpy(2 * x.numpy())
    ...
    ...     @staticmethod
    ...     def setup_context(ctx, inputs, output):
    ...         pass
    >>> torch.vmap(Doubled.of)(torch.ones(2, 1))
    tensor([[2.],
            [2.]])
    """

    def __init_subclass__(cls) -> None:
        """Keep the signature of ``forward``: torch asks for it in each call, which took 30 us."""
        forward: Any = cls.forward
        forward.__signature__ = inspect.signature(forward)

    @classmethod
    def of(cls, *arguments: Any) -> Tensor:
        """Return the result."""
        result: Tensor = cls.apply(*arguments)  # type: ignore[no-untyped-call]
        return result

    @classmethod
    def vmap(cls, info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Tensor, int]:
        """Return the results for the members of a batch, one after the other, and their dimension."""
        members = (
            [x if dim is None else x.select(dim, i) for x, dim in zip(arguments, in_dims, strict=True)]
            for i in range(info.batch_size)
        )
        return torch.stack([cls.of(*member) for member in members]), 0
