"""Products with a gradient that is mostly zero, as it is behind ReLU and dropout: its zeros are left out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spsample.common.threads import compiled_core
from spsample.nn.tensors import new_numbers

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
    """``G W``: of a weight of shape ``(width, dim)`` the gradient of the product's rows.

    Examples
    --------
    >>> times(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 3.0], [5.0, 7.0]]))
    tensor([[10., 14.]])
    """
    out = new_numbers((len(gradient), weight.shape[1]))
    compiled_core().multiply_sparse(_flat(gradient), _flat(weight), tuple(weight.shape), _flat(out))
    return out


def outer_sums(gradient: Tensor, x: Tensor) -> Tensor:
    """``G^T x``: of rows of shape ``(rows, dim)`` the gradient of the product's weight.

    Examples
    --------
    >>> outer_sums(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 3.0]]))
    tensor([[0., 0.],
            [2., 6.]])
    """
    return _outer_sums(gradient, x, None)


def outer_and_column_sums(gradient: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """``G^T [x | 1]``: the gradients of the product's weight and of its bias, in one pass over both.

    Examples
    --------
    >>> outer_and_column_sums(torch.tensor([[0.0, 2.0], [0.0, 5.0]]), torch.tensor([[1.0], [3.0]]))
    (tensor([[ 0.],
            [17.]]), tensor([0., 7.]))
    """
    of_columns = torch.empty(gradient.shape[1], dtype=torch.float32, device="cpu")
    return _outer_sums(gradient, x, of_columns), of_columns


def _outer_sums(gradient: Tensor, x: Tensor, of_columns: Tensor | None) -> Tensor:
    out = torch.empty(gradient.shape[1], x.shape[1], dtype=torch.float32, device="cpu")
    columns = None if of_columns is None else _flat(of_columns)
    compiled_core().sum_outer_products(_flat(gradient), _flat(x), tuple(out.shape), _flat(out), columns)
    return out


def _flat(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy().reshape(-1)
