"""The way back through a matrix product whose gradient is mostly zero, as it is behind ReLU and dropout."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spsample.common.threads import compiled_core

__all__ = ["SparseGradient"]

_MOST = 0.375
"""Share of numbers other than 0 up to which leaving out the others is faster, on every instruction set."""

_SAMPLED_ROWS = 64


@dataclass(frozen=True)
class SparseGradient:
    """A gradient of shape ``(rows, width)`` whose zeros products leave out; that another is 0 is not looked at.

    Attributes
    ----------
    numbers
        float32, on the processor.
    where, scale
        The gradient is ``numbers * scale`` where ``where`` is above 0, else 0; or ``numbers`` where that is None.

    Examples
    --------
    >>> g = SparseGradient(torch.tensor([[2.0, 4.0], [6.0, 8.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), 0.5)
    >>> g.is_sparse(), g.times(torch.eye(2))
    (True, tensor([[1., 0.],
            [0., 0.]]))
    """

    numbers: Tensor
    where: Tensor | None = None
    scale: float = 1.0

    def is_sparse(self) -> bool:
        """Whether so much is zero, in some of the rows, that it pays to leave zeros out."""
        if compiled_core() is None or self.numbers.numel() == 0:
            return False
        some = slice(None, None, max(len(self.numbers) // _SAMPLED_ROWS, 1))
        there = self.numbers[some] if self.where is None else self.where[some] > 0
        return int(torch.count_nonzero(there)) <= _MOST * there.numel()

    def times(self, weight: Tensor) -> Tensor:
        """``G W``: of a weight of shape ``(width, dim)`` the gradient of the product's rows."""
        out = torch.empty(len(self.numbers), weight.shape[1])
        compiled_core().multiply_sparse(*self._flat(), _numbers(weight), tuple(weight.shape), _numbers(out))
        return out

    def outer_sums(self, x: Tensor, has_bias: bool) -> tuple[Tensor, Tensor | None]:
        """``G^T x``, the gradient of a weight of shape ``(width, dim)``, and that of a bias."""
        shape = self.numbers.shape[1], x.shape[1]
        out, sums = torch.empty(shape), torch.empty(shape[0]) if has_bias else None
        to = None if sums is None else sums.numpy()
        compiled_core().sum_outer_products(*self._flat(), _numbers(x), shape, _numbers(out), to)
        return out, sums

    def _flat(self) -> tuple[object, object, float]:
        return _numbers(self.numbers), None if self.where is None else _numbers(self.where), self.scale


def _numbers(tensor: Tensor) -> object:
    return tensor.detach().contiguous().numpy().reshape(-1)
