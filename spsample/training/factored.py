"""Gradients of a step whose batches any rank may have trained: added in the order of the batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from spsample.comm import Channel, Communicator, Sent
from spsample.comm.buffers import reduce_in_order
from spsample.common.checks import require_type
from spsample.training.gradients import CommunicatorGradients, StepLoss

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FactoredGradients"]


class FactoredGradients(CommunicatorGradients):
    """The mean over the seeds of a list of batches, whichever rank has trained which of them.

    Each rank adds up a p-th of the parameters, batch by batch, and gets the other sums: so the bits are those of as
    many ranks with a batch each, and do not depend on who trained what. A rank may have trained none.

    After `finish_step` the parameters have the mean. Let them have no gradients (`zero_grad`) before going back through
    the next batch, which adds to those that there are.

    Parameters
    ----------
    model
        The same on every rank.
    comm
        Used by the thread that trains alone. Phase "gradients".

    Attributes
    ----------
    comm : Communicator

    Examples
    --------
    >>> import torch
    >>> from spsample.comm import LocalCommunicator
    >>> model = torch.nn.Linear(2, 1)
    >>> gradients = FactoredGradients(model, LocalCommunicator())
    >>> for batch_id, seeds in ((4, 3), (5, 2)):
    ...     loss = gradients.model(torch.ones(seeds, 2)).mean()
    ...     gradients.prepare(loss)
    ...     gradients.keep(batch_id, loss, seeds)
    >>> gradients.finish_step().num_seeds
    5
    """

    def __init__(self, model: torch.nn.Module, comm: Communicator) -> None:
        require_type("model", model, torch.nn.Module, "a torch.nn.Module")
        require_type("comm", comm, Communicator, "a communicator, as spsample.init() makes")
        super().__init__(model, comm)
        self.comm = comm
        self._kept: dict[int, NDArray[np.float32]] = {}

    def keep(self, batch_id: int, loss: torch.Tensor, num_seeds: int) -> None:
        """Keep the gradients of a batch, after `prepare`, and let the parameters have none."""
        self._kept[batch_id] = self._weighted(loss, num_seeds)
        for parameter in self._parameters:
            parameter.grad = None

    def drop(self) -> None:
        """Forget what was kept."""
        self._kept.clear()

    def finish_step(self) -> StepLoss:
        """Sum over all batches that ranks have kept, and divide by all seeds; collective."""
        size = self.comm.size
        ids = np.array(sorted(self._kept), np.int64)
        length = sum(parameter.numel() for parameter in self._parameters) + 2
        share = -(-length // size)
        kept = np.zeros((len(ids), size * share), np.float32)
        for row, batch_id in zip(kept, ids.tolist(), strict=True):
            row[:length] = self._kept[batch_id]
        self._kept.clear()
        rows = kept.reshape(len(ids), size, share).swapaxes(0, 1)
        counts = np.full(size, len(ids))
        sends = [Sent(np.tile(ids, size), counts), Sent(rows.reshape(-1, share), counts)]
        all_ids, all_rows = (received.rows for received in Channel(self.comm).exchange(sends, phase="gradients"))
        in_order = all_rows[np.argsort(all_ids)]
        mine = reduce_in_order(in_order, "sum") if len(in_order) else np.zeros(share, np.float32)
        total = self.comm.all_gather(mine, phase="gradients").reshape(-1)[:length]
        return self._mean(total)
