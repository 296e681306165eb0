"""Gradients of ranks that train on one minibatch together."""

from __future__ import annotations

import numpy as np
import torch

from spsample.comm import Communicator
from spsample.common.checks import require_type
from spsample.training.gradients import CommunicatorGradients, StepLoss

__all__ = ["CooperativeGradients"]


class CooperativeGradients(CommunicatorGradients):
    """Gradients of the mean loss over the seeds of one minibatch, of which each rank has computed some rows.

    Each rank has a part of every row's gradient; they are summed in the order of the ranks.

    Parameters
    ----------
    model
        The same on every rank.
    comm
        Used by the thread that trains alone. Phase "gradients".

    Raises
    ------
    DTypeError
        If these are no model and no communicator.
    """

    def __init__(self, model: torch.nn.Module, comm: Communicator) -> None:
        require_type("model", model, torch.nn.Module, "a torch.nn.Module")
        require_type("comm", comm, Communicator, "a communicator, as spsample.init() makes")
        super().__init__(model, comm)

    def prepare(self, loss: torch.Tensor, share: float = 1.0) -> None:
        """Backward, all ranks together; ``share`` is the part of the batch's seeds that ``loss`` is the mean of."""
        (loss * share).backward()  # type: ignore[no-untyped-call]

    def finish(self, loss: torch.Tensor, num_seeds: int) -> StepLoss:
        """Sum the gradients and the losses."""
        total_loss = self._comm.all_reduce(np.array([loss.item() * num_seeds, num_seeds]), phase="gradients")
        if self._comm.size > 1:
            mine = [_gradient(parameter).reshape(-1) for parameter in self._parameters]
            self._take(self._comm.all_reduce(torch.cat(mine).numpy(), phase="gradients"))
        loss_sum, seeds = total_loss.tolist()
        return StepLoss(loss_sum / max(seeds, 1.0), int(seeds))


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    return (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).detach().cpu()
