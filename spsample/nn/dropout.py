"""Dropout whose masks belong to vertices: a row is masked alike whichever rank computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from spsample.backends import get_backend
from spsample.common.checks import require_int, require_number
from spsample.common.threads import compiled_core
from spsample.nn.private import CoreFunction, is_traced
from spsample.nn.tensors import flat, new_numbers
from spsample.sparse.keys import DROPOUT, derive_key

_WORDS = 4
"""32-bit words of one counter: masks of four columns."""


@dataclass(frozen=True)
class DropoutKey:
    """The key of the masks of a step.

    Attributes
    ----------
    random_seed, epoch, batch_id : int
    """

    random_seed: int
    epoch: int
    batch_id: int

    def words(self, vertices: Any, site: int, columns: int) -> np.ndarray:
        """(rows, columns) words, uint32, which follow from the vertex, the place in the model and the column.

        Philox4x32-10, as in docs/law.md: the counter holds the vertex (48 bits), the place (16 bits), the column div 4
        and the batch id; word column mod 4.

        Examples
        --------
        >>> key = DropoutKey(0, 0, 7)
        >>> bool((key.words(np.array([5, 3]), 1, 6)[1] == key.words(np.array([3]), 1, 6)[0]).all())
        True
        """
        ids = np.asarray(vertices.cpu() if isinstance(vertices, Tensor) else vertices, np.int64)
        blocks = -(-columns // _WORDS)
        counters = np.empty((len(ids), blocks, _WORDS), np.uint32)
        counters[..., 0] = (ids & 0xFFFFFFFF)[:, None]
        counters[..., 1] = ((ids >> 32) | (site << 16))[:, None]
        counters[..., 2] = np.arange(blocks)
        counters[..., 3] = self.batch_id
        key = derive_key(self.random_seed, self.epoch, DROPOUT)
        words = get_backend().philox(counters.reshape(-1, _WORDS), key)
        return np.asarray(words).reshape(len(ids), blocks * _WORDS)[:, :columns]


@dataclass(frozen=True)
class MaskedRows:
    """The vertices of the rows of a matrix, and the key of their masks.

    Attributes
    ----------
    vertices : int array (rows,)
    key : DropoutKey
    """

    vertices: Any
    key: DropoutKey


class VertexDropout(nn.Module):
    """Dropout by vertex where rows are named, else by the place of a number and torch's generator.

    Parameters
    ----------
    p
        Probability that a number is dropped, from 0 to 1; the others are multiplied by 1 / (1 - p).
    site
        Number of the place in the model, below 2^16: places of one number share masks. A `GNN` numbers its own.

    Raises
    ------
    InputError
        If it is no probability, or no such number.

    Examples
    --------
    >>> dropout, rows = VertexDropout(0.5), MaskedRows(np.array([4, 9]), DropoutKey(0, 0, 0))
    >>> both = dropout(torch.ones(2, 8), rows)
    >>> torch.equal(both[1:], dropout(torch.ones(1, 8), MaskedRows(np.array([9]), rows.key)))
    True
    """

    def __init__(self, p: float, site: int = 0) -> None:
        super().__init__()
        self.p = require_number("p", p, lambda p: 0 <= p <= 1, "a number from 0 to 1")
        self.site = require_int("site", site, minimum=0, maximum=2**16 - 1)

    def forward(self, h: Tensor, rows: MaskedRows | None = None) -> Tensor:
        """Return ``h`` with numbers dropped, in training; else as it is."""
        if not self.training or self.p == 0:
            return h
        if rows is None:
            return dropped(h, self.p)
        if self.p == 1:
            return h * 0.0
        kept = rows.key.words(rows.vertices, self.site, h.shape[1]) >= np.uint32(_least(self.p))
        return h * torch.from_numpy(kept).to(h.device) * (1 / (1 - self.p))

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"


class RectifiedDropout(VertexDropout):
    """ReLU, then `VertexDropout`: the same numbers, in one pass over them, and back by the result alone.

    Examples
    --------
    >>> RectifiedDropout(0.5).eval()(torch.tensor([[-1.0, 2.0]]))
    tensor([[0., 2.]])
    """

    def forward(self, h: Tensor, rows: MaskedRows | None = None) -> Tensor:
        """Return ``max(h, 0)`` with numbers dropped, in training; else ``max(h, 0)``."""
        in_one_pass = self.training and self.p > 0 and rows is None and _is_for_core(h, self.p)
        if not in_one_pass:
            return super().forward(functional.relu(h), rows)
        return _DroppedRectified.of(h, self.p, _drawn_key())


def dropped(h: Tensor, p: float) -> Tensor:
    """Dropout by the place of a number; one number of torch's generator is the key of all of them.

    On the processor torch draws the numbers of a mask one after the other, which took half of a step. Here they
    follow from a counter, on all threads. On a device, of other numbers than float32 and without the core torch
    does it.
    """
    if not _is_for_core(h, p):
        return functional.dropout(h, p, training=True)
    return _Dropped.of(h, p, _drawn_key())


def _least(p: float) -> int:
    """The least word of a number that is kept."""
    return min(round(p * 2**32), 2**32 - 1)


def _is_for_core(h: Tensor, p: float) -> bool:
    """Return whether the compiled core drops numbers of h; where calls become a graph torch does."""
    return not is_traced() and h.is_cpu and h.dtype == torch.float32 and 0 <= p < 1 and compiled_core() is not None


def _drawn_key() -> Tensor:
    """The key of a mask, of torch's generator: one int64, for each member of a batch of `torch.vmap` its own."""
    return torch.randint(2**63 - 1, (), device="cpu")


def _dropped(kernel: Callable[..., None], h: Tensor, p: float, key: Tensor) -> Tensor:
    """Return the result of a kernel of the core for h and a key."""
    number, out = int(key), new_numbers(h.shape)
    kernel(flat(h), (number & 0xFFFFFFFF, number >> 32), _least(p), 1 / (1 - p), flat(out))
    return out


class _Dropped(CoreFunction):
    """Dropout under a key; its derivative is the same of the gradient, so that no mask is kept."""

    @staticmethod
    def forward(h: Tensor, p: float, key: Tensor) -> Tensor:
        return _dropped(compiled_core().drop_numbers, h, p, key)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.p, key = inputs[1:]
        ctx.save_for_backward(key)
        ctx.save_for_forward(key)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _Dropped.of(tangents[0], ctx.p, *ctx.saved_tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _Dropped.of(gradients[0], ctx.p, *ctx.saved_tensors), None, None


class _DroppedRectified(CoreFunction):
    """ReLU and dropout under a key; what is above 0 afterwards passes gradients on, and no mask is kept."""

    @staticmethod
    def forward(h: Tensor, p: float, key: Tensor) -> Tensor:
        return _dropped(compiled_core().drop_rectified, h, p, key)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.p = inputs[1]
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return _ScaledWherePositive.of(tangents[0], *ctx.saved_tensors, 1 / (1 - ctx.p))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _ScaledWherePositive.of(gradients[0], *ctx.saved_tensors, 1 / (1 - ctx.p)), None, None


class _ScaledWherePositive(CoreFunction):
    """Numbers times a scale where others are above 0, else 0; its derivative is the same of the gradient."""

    @staticmethod
    def forward(x: Tensor, where: Tensor, scale: float) -> Tensor:
        out = new_numbers(x.shape)
        compiled_core().scale_where_positive(flat(x), flat(where), scale, flat(out))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.scale = inputs[2]
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return _ScaledWherePositive.of(tangents[0], *ctx.saved_tensors, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _ScaledWherePositive.of(gradients[0], *ctx.saved_tensors, ctx.scale), None, None


class Rowwise(nn.Sequential):
    """Modules that act on one row at a time, one after the other; dropout among them gets the vertices of the rows.

    Examples
    --------
    >>> Rowwise(nn.Linear(2, 3), VertexDropout(0.5), nn.ReLU()).eval()(torch.ones(4, 2)).shape
    torch.Size([4, 3])
    """

    def forward(self, h: Tensor, rows: MaskedRows | None = None) -> Tensor:
        """Return the result of the last one."""
        for module in self:
            h = module(h, rows) if isinstance(module, VertexDropout) else module(h)
        return h
