"""Rows of activations of a batch that ranks share: they go to those who need them, and gradients come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from spsample.comm import Channel, Sent
from spsample.distributed.cooperative import Routes
from spsample.errors import InputError


class Exchange:
    """The rows of a layer's sources, from those of the vertices that each rank owns; differentiable, and collective.

    Each distinct row goes once to each rank that needs it, and its gradient comes back once. Gradients are added in the
    order of the ranks: the same bits in every run.

    Parameters
    ----------
    routes : Routes
        Whose rows go where.
    channel : Channel
        Over all ranks. Phases "batch activations" and "batch gradients".

    Attributes
    ----------
    is_done : bool
        Whether it was called.

    References
    ----------
    M. F. Balin, D. LaSalle and U. V. Catalyurek, Cooperative minibatching in graph neural networks, TMLR 2025.

    Examples
    --------
    >>> from spsample.comm import LocalCommunicator
    >>> from spsample.distributed.cooperative import Routes
    >>> none = np.zeros(1, np.int64)
    >>> routes = Routes(3, np.array([2, 0], np.int32), np.zeros(0, np.int32), none, none)
    >>> Exchange(routes, Channel(LocalCommunicator()))(torch.tensor([[1.0], [2.0], [3.0]]))
    tensor([[3.],
            [1.]])
    """

    def __init__(self, routes: Routes, channel: Channel) -> None:
        self._routes, self._channel = routes, channel
        self.is_done = False

    def __call__(self, h: torch.Tensor) -> torch.Tensor:
        """Return the rows of the sources: shape (owned, dim) to (num_src, dim).

        Raises
        ------
        InputError
            If there is not one row for each vertex of the layer that this rank owns.
        """
        if h.ndim != 2 or len(h) != self._routes.owned:
            raise InputError(
                argument="h",
                given=f"shape {tuple(h.shape)}",
                expected=f"a row for each vertex that this rank owns: ({self._routes.owned}, dim)",
            )
        self.is_done = True
        sources: torch.Tensor = _Exchanged.apply(h, self._routes, self._channel)  # type: ignore[no-untyped-call]
        return sources


class _Exchanged(torch.autograd.Function):
    """The exchange and its transpose."""

    @staticmethod
    def forward(ctx: Any, h: torch.Tensor, routes: Routes, channel: Channel) -> torch.Tensor:
        ctx.routes, ctx.channel = routes, channel
        sent = h.index_select(0, _places(routes.send, h))
        received = _moved(sent, routes.send_counts, channel, "batch activations")
        return torch.cat([h.index_select(0, _places(routes.own, h)), received])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        routes, owned = ctx.routes, len(ctx.routes.own)
        back = _moved(g[owned:], routes.recv_counts, ctx.channel, "batch gradients")
        total = g.new_zeros(routes.owned, g.shape[1])
        total[_places(routes.own, g)] = g[:owned]
        send, counts = _places(routes.send, g), routes.send_counts.tolist()
        for places, rows in zip(torch.split(send, counts), torch.split(back, counts), strict=True):
            total[places] += rows  # places of one rank are distinct
        return total, None, None


def _places(places: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.asarray(places, np.int64)).to(like.device)


def _moved(rows: torch.Tensor, counts: Any, channel: Channel, phase: str) -> torch.Tensor:
    """Send rows rank by rank, and return those that came, wherever the model is."""
    host = rows.detach().cpu().contiguous()
    row_bytes = host.element_size() * host.shape[1]
    as_bytes = host.reshape(-1).view(torch.uint8).numpy().reshape(len(host), row_bytes)  # whatever its type
    moved = channel.exchange([Sent(as_bytes, counts)], phase=phase)[0].rows
    return torch.from_numpy(moved.reshape(-1)).view(rows.dtype).reshape(-1, rows.shape[1]).to(rows.device)


def require_exchanged(*exchanges: Exchange | None) -> None:
    """Refuse a forward pass that did not exchange the rows of each block's sources: it computes something else.

    Raises
    ------
    InputError

    Examples
    --------
    >>> require_exchanged(None, None)  # of batches of a rank's own
    """
    if any(exchange is not None and not exchange.is_done for exchange in exchanges):
        raise InputError(
            argument="model",
            given="a forward pass that did not call block.sources in each layer",
            expected="h = block.sources(h) once in each layer, before its convolution",
            hint="GNN.forward does so. Other models work with batches of each rank's own.",
        )
