"""Asynchronous training: rank 0 applies each gradient as it comes, within a bound on how old its weights are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from spsample.comm import Communicator
from spsample.comm.message_thread import Message, MessageThread
from spsample.common.checks import require_int
from spsample.common.packing import pack, unframed
from spsample.errors import on_rank
from spsample.loading import Batch
from spsample.pipelines.factored import FactoredPipeline
from spsample.pipelines.gradients import FactoredGradients, StepLoss, broadcast_weights

_WANT, _GRADIENT, _WEIGHTS = 0, 1, 2
_MAX_WAIT = 10.0


class AsynchronousPipeline(FactoredPipeline):
    """Each gradient is applied as it comes, within a bound on the age of its weights; steps are where ranks meet.

    Gradients are of a copy of the model, with the weights that a rank got last.
    """

    BATCHES_PER_RANK = 16
    """Of a step, after which ranks meet."""

    @property
    def notes(self) -> list[str]:
        """Choices of the factored pipeline, and the staleness of gradients."""
        stale = f"the most stale gradient was {self._rule.largest} updates late, of at most {self._rule.bound}"
        return [*super().notes, *([stale] if self._rule.version else [])]

    @property
    def largest_staleness(self) -> int:
        """Updates that were made between the weights of a gradient and the gradient's own, at most so far."""
        return self._rule.largest

    def close(self) -> None:
        """Free the communicator of the messages, too."""
        super().close()
        self._messages.close()

    def _make_gradients(self, model: nn.Module) -> FactoredGradients:
        gradients = super()._make_gradients(copy.deepcopy(model))
        self._rule = StalenessBound(self.config.staleness or 0)
        self._messages = self.comm.duplicate()
        self._updates: Any = None  # of the step that is under way
        return gradients

    def _steps(self) -> Iterator[Any]:
        """For each step the batches that this rank trains, each with the newest weights that the bound allows."""
        steps = super()._steps()
        while True:
            updates = self._updates = Updates(self._messages, self._model, self.optimize, self._rule)
            try:  # all ranks have them before any can fail in a step
                step = next(steps, None)
            except BaseException as error:
                updates.fail(on_rank(error, self.comm.rank))
                raise
            if step is None:
                updates.finish()
                return
            yield step

    def _train(self, batch: Batch) -> None:
        self._updates.weights(self.gradients.model)
        self._updates.push(self.gradients.model, *self.backward(batch))

    def _finish(self) -> StepLoss:
        """Wait until all gradients are applied, and let all ranks have the weights."""
        loss: StepLoss = self._updates.finish()
        broadcast_weights(self.comm, self._model, "weights")
        numbers = np.array([loss.mean, loss.num_seeds, self._rule.largest, self._rule.version], np.float64)
        mean, num_seeds, largest, version = self.comm.broadcast(numbers, phase="weights").tolist()
        self._rule.largest, self._rule.version = int(largest), int(version)
        return StepLoss(mean, int(num_seeds))

    def _update(self) -> None:
        """Do nothing: rank 0 has taken a step with each gradient as it came."""

    def _fail(self, error: Exception) -> None:
        super()._fail(error)
        if self._updates is not None:
            self._updates.fail(error)


class Updates:
    """The updates of one step on one rank; rank 0 has the weights and the optimiser.

    Parameters
    ----------
    comm : Communicator
        Used by the thread that delivers messages alone. Phase "weights and gradients".
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
        self._model, self._optimize, self._rule = model, optimize, rule
        self._granted: SimpleQueue[Any] = SimpleQueue()
        self._gradients: dict[int, Any] = {}
        self._failure: Exception | None = None
        self.loss_sum, self.num_seeds = 0.0, 0
        rule.start_anew()
        self._messages = MessageThread(comm, self._deliver, self._ended, phase="weights and gradients")
        self._messages.start()

    def weights(self, into: nn.Module) -> None:
        """Wait for weights, and let a model of the same shape have them."""
        self._messages.post(0, _WANT)
        weights = self._granted.get()
        if isinstance(weights, Exception):
            raise weights
        with torch.no_grad():
            for parameter, array in zip(into.parameters(), weights, strict=True):
                parameter.copy_(torch.from_numpy(array))

    def push(self, model: nn.Module, loss: Tensor, num_seeds: int) -> None:
        """Send the gradients that the parameters of a model have, of the weights that it got; they have none then."""
        gradients = [None if p.grad is None else p.grad.detach().cpu().numpy() for p in model.parameters()]
        self._messages.post(0, _GRADIENT, 0, pack((gradients, loss.item(), num_seeds)).framed())
        model.zero_grad(set_to_none=True)

    def fail(self, error: Exception) -> None:
        """Let all ranks know that this one has failed, and wait until they do."""
        self._messages.fail(error)
        self._messages.join(_MAX_WAIT)

    def finish(self) -> StepLoss:
        """Wait until the gradients of all ranks are applied; the mean loss, on rank 0."""
        self._messages.finish()
        self._messages.join()
        if self._failure is not None:
            raise self._failure
        return StepLoss(self.loss_sum / max(self.num_seeds, 1), self.num_seeds)

    # -------------------------------------------------------------------------- the thread that delivers messages

    def _deliver(self, message: Message) -> None:
        if message.kind == _WEIGHTS:
            self._granted.put(unframed(message.payload))
        elif message.kind == _WANT:
            self._make_happen(self._rule.want(message.source))
        else:
            self._gradients[message.source] = unframed(message.payload)
            self._make_happen(self._rule.came(message.source))

    def _make_happen(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, Apply):
                self._apply(*self._gradients.pop(event.rank))
            else:
                weights = [parameter.detach().cpu().numpy() for parameter in self._model.parameters()]
                self._messages.post(event.rank, _WEIGHTS, event.version, pack(weights).framed())

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


class Grant(NamedTuple):
    """A rank gets the weights as they are now, for one batch."""

    rank: int
    version: int


class Apply(NamedTuple):
    """The gradient of a rank is applied; `staleness` updates were made since it got its weights."""

    rank: int
    staleness: int


class StalenessBound:
    """The order in which ranks get weights and gradients are applied.

    The gradients under way, oldest weights first, could always be applied in this order within the bound: the i-th one,
    from 0, after i updates. A rank gets weights only where that stays so, and a gradient that comes early is applied
    only where that stays so; else it waits for an older one. The oldest can always be applied: no rank waits for ever.

    Parameters
    ----------
    bound : int
        Updates that may be made between the weights of a gradient and the gradient's own; with 0 ranks take turns.

    Attributes
    ----------
    version : int
        Updates so far.
    largest : int
        The largest staleness of an applied gradient.

    Examples
    --------
    >>> rule = StalenessBound(1)
    >>> rule.want(0), rule.want(1), rule.want(2)  # with a third one, one would be two updates late
    ([Grant(rank=0, version=0)], [Grant(rank=1, version=0)], [])
    >>> rule.came(1)
    [Apply(rank=1, staleness=0), Grant(rank=2, version=1)]
    >>> rule.came(2), rule.came(0)  # that of rank 2 waits: it would make that of rank 0 two updates late
    ([], [Apply(rank=0, staleness=1), Apply(rank=2, staleness=1)])
    """

    def __init__(self, bound: int) -> None:
        self.bound = require_int("staleness", bound, minimum=0)
        self.version = self.largest = 0
        self._under_way: dict[int, int] = {}  # version of the weights, by rank
        self._early: list[int] = []  # ranks whose gradient came and waits
        self._wanting: list[int] = []

    def start_anew(self) -> None:
        """Forget what is under way: the gradients of a step that has failed never come."""
        for waiting in (self._under_way, self._early, self._wanting):
            waiting.clear()

    def want(self, rank: int) -> list[Grant | Apply]:
        """A rank wants weights; what happens now."""
        self._wanting.append(rank)
        return self._granted()

    def came(self, rank: int) -> list[Grant | Apply]:
        """The gradient of a rank came; what happens now, in this order."""
        self._early.append(rank)
        happens: list[Grant | Apply] = []
        while (ready := next(filter(self._may_go, self._early), None)) is not None:
            self._early.remove(ready)
            staleness = self.version - self._under_way.pop(ready)
            self.version += 1
            self.largest = max(self.largest, staleness)
            happens.append(Apply(ready, staleness))
        return happens + self._granted()

    def _granted(self) -> list[Grant | Apply]:
        """Weights for those who want some; a rank whose gradient still waits gets them once it is applied."""
        granted: list[Grant | Apply] = []
        for rank in [*self._wanting]:
            if rank not in self._under_way and len(self._under_way) <= self.bound:
                self._wanting.remove(rank)
                self._under_way[rank] = self.version
                granted.append(Grant(rank, self.version))
        return granted

    def _may_go(self, rank: int) -> bool:
        """Return whether the others stay within the bound where this one is applied now."""
        others = sorted(version for other, version in self._under_way.items() if other != rank)
        return all(self.version + 1 + i - version <= self.bound for i, version in enumerate(others))


PIPELINE = AsynchronousPipeline
