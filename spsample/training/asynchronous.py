"""Asynchronous updates: rank 0 applies each gradient as it comes, within a bound on how old its weights are."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spsample.comm import Communicator
from spsample.comm.mailbox import Letter, Mailbox
from spsample.common.packing import pack, unframed
from spsample.training.gradients import StepLoss
from spsample.training.staleness import Apply, StalenessBound

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Updates"]

_WANT, _GRADIENT, _WEIGHTS = 0, 1, 2
_LONGEST_GOODBYE = 10.0


class Updates:
    """The updates of one step on one rank; rank 0 has the weights and the optimiser.

    Parameters
    ----------
    comm : Communicator
        Used by the thread that delivers letters alone. Phase "weights and gradients".
    model
        Whose weights rank 0 updates.
    optimize : function
        Takes an optimisation step with the gradients that the parameters of `model` have.
    rule : StalenessBound
        Of rank 0; it lives as long as the run.

    Attributes
    ----------
    loss_sum, num_seeds
        On rank 0: over the gradients applied.
    """

    def __init__(
        self, comm: Communicator, model: nn.Module, optimize: Callable[[], None], rule: StalenessBound
    ) -> None:
        self._rank, self._model, self._optimize, self._rule = comm.rank, model, optimize, rule
        self._granted: SimpleQueue[Any] = SimpleQueue()
        self._gradients: dict[int, Any] = {}
        self._failure: Exception | None = None
        self.loss_sum, self.num_seeds = 0.0, 0
        rule.start_anew()
        self._mailbox = Mailbox(comm, self._deliver, self._ended, phase="weights and gradients")
        self._mailbox.start()

    def weights(self, into: nn.Module) -> None:
        """Wait for weights, and let a model of the same shape have them."""
        self._mailbox.post(0, _WANT)
        weights = self._granted.get()
        if isinstance(weights, Exception):
            raise weights
        with torch.no_grad():
            for parameter, array in zip(into.parameters(), weights, strict=True):
                parameter.copy_(torch.from_numpy(array))

    def push(self, model: nn.Module, loss: Tensor, num_seeds: int) -> None:
        """Send the gradients that the parameters of a model have, of the weights that it got; they have none then."""
        gradients = [None if p.grad is None else p.grad.detach().cpu().numpy() for p in model.parameters()]
        self._mailbox.post(0, _GRADIENT, 0, pack((gradients, loss.item(), num_seeds)).framed())
        model.zero_grad(set_to_none=True)

    def fail(self, error: Exception) -> None:
        """Tell all ranks that this one has failed, and wait until all know."""
        self._mailbox.fail(error)
        self._mailbox.join(_LONGEST_GOODBYE)

    def finish(self) -> StepLoss:
        """Wait until the gradients of all ranks are applied; the mean loss, on rank 0."""
        self._mailbox.finish()
        self._mailbox.join()
        if self._failure is not None:
            raise self._failure
        return StepLoss(self.loss_sum / max(self.num_seeds, 1), self.num_seeds)

    # -------------------------------------------------------------------------- the thread that delivers letters

    def _deliver(self, letter: Letter) -> None:
        if letter.kind == _WEIGHTS:
            self._granted.put(unframed(letter.payload))
        elif letter.kind == _WANT:
            self._make_happen(self._rule.want(letter.source))
        else:
            self._gradients[letter.source] = unframed(letter.payload)
            self._make_happen(self._rule.came(letter.source))

    def _make_happen(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, Apply):
                self._apply(*self._gradients.pop(event.rank))
            else:
                weights = [parameter.detach().cpu().numpy() for parameter in self._model.parameters()]
                self._mailbox.post(event.rank, _WEIGHTS, event.version, pack(weights).framed())

    def _apply(self, gradients: list[Any], loss: float, num_seeds: int) -> None:
        if num_seeds == 0:
            return
        for parameter, gradient in zip(self._model.parameters(), gradients, strict=True):
            parameter.grad = None if gradient is None else torch.from_numpy(np.array(gradient)).to(parameter)
        self._optimize()
        self.loss_sum += loss * num_seeds
        self.num_seeds += num_seeds

    def _ended(self, failure: Exception | None) -> None:
        self._failure = failure
        if failure is not None:
            self._granted.put(failure)
