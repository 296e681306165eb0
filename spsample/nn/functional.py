"""Dropout by torch's names, faster on the processor."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from spsample.nn.dropout import dropped


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.dropout`, with a mask that follows from a counter on all threads.

    The law is the same: each number is dropped with probability `p`, and the others are multiplied by 1 / (1 - p). The
    mask is other numbers of it: one number of torch's generator is its key. No mask is kept for the way back. Numbers
    of other types than float32, on a device, in place and in a compiled graph are torch's to drop.

    Examples
    --------
    >>> import torch
    >>> from spsample.nn.functional import dropout
    >>> sorted(set(dropout(torch.ones(1000), 0.5).tolist()))
    [0.0, 2.0]
    """
    if not training or p == 0 or inplace:
        return functional.dropout(input, p, training, inplace)
    return dropped(input, p)


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` by `dropout`.

    Examples
    --------
    >>> import torch
    >>> Dropout(0.2), Dropout(0.2).eval()(torch.ones(2))
    (Dropout(p=0.2, inplace=False), tensor([1., 1.]))
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the numbers that are left, in training; else all."""
        return dropout(input, self.p, self.training, self.inplace)
