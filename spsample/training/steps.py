"""What a step of training is: one batch of each rank, one that all share, or a list of batches for whoever is free."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from spsample.errors import CommunicationError, InputError, RankError, on_rank
from spsample.nn.dropout import DropoutKey
from spsample.training.asynchronous import Updates
from spsample.training.cooperative import CooperativeGradients
from spsample.training.factored import FactoredGradients
from spsample.training.generator import RunGenerator
from spsample.training.gradients import Gradients, StepLoss, gradients_for
from spsample.training.staleness import StalenessBound
from spsample.training.trial import measured_samplers

if TYPE_CHECKING:
    from spsample.comm import Communicator
    from spsample.loading import Batch
    from spsample.settings.training import TrainConfig

__all__ = ["Asynchronously", "OwnBatches", "Run", "SharedBatches", "Steps", "WhoeverIsFree", "steps_for"]

Backward = Callable[["Batch"], "tuple[torch.Tensor, int]"]
"""Goes forward and back with a batch; the mean loss over its seeds, and their number."""


class Run(NamedTuple):
    """What a step works on.

    Attributes
    ----------
    config : TrainConfig
    loader
        Of the run's pipeline.
    model
        What is trained.
    backward : function
        Goes forward and back with a batch.
    optimize : function
        Takes an optimisation step with the gradients that the model's parameters have.
    """

    config: TrainConfig
    loader: Any
    model: torch.nn.Module
    backward: Backward
    optimize: Callable[[], None]


class Steps(Protocol):
    """How the batches of a loader become steps of the optimiser.

    Attributes
    ----------
    gradients : Gradients
        Its model is called for each batch.
    """

    gradients: Any

    @property
    def remarks(self) -> list[str]:
        """What there is to say of the run, in sentences."""
        ...

    def begin(self, run: Run) -> None:
        """Get ready for the first step; collective."""
        ...

    def close(self) -> None:
        """Free what was made for it; collective."""
        ...

    def of_epoch(self, loader: Any) -> Iterator[Any]:
        """What this rank has of each step of an epoch."""
        ...

    def compute(self, step: Any, backward: Backward) -> None:
        """Compute the gradients of what this rank has of a step."""
        ...

    def finish(self) -> StepLoss:
        """Put the gradients of all ranks together; collective."""
        ...

    def optimize(self, optimize: Callable[[], None]) -> None:
        """Take an optimisation step with them."""
        ...

    def dropout_key(self, config: TrainConfig, epoch: int, batch: Batch) -> DropoutKey | None:
        """What masks the rows of a batch by vertex; None where torch's numbers do."""
        ...

    def drawing(self, config: TrainConfig, epoch: int, batch: Batch) -> AbstractContextManager[None]:
        """Around what draws torch's numbers."""
        ...

    def explaining(self, loader: Any) -> AbstractContextManager[None]:
        """Around a run: errors of ranks say what these ranks do."""
        ...


class OwnBatches:
    """In each step a rank has one batch of its own.

    Parameters
    ----------
    gradients : Gradients
    follows_run : bool
        Whether numbers go on from batch to batch, as those of one rank do; else they follow from the batch.
    """

    def __init__(self, gradients: Gradients, *, follows_run: bool) -> None:
        self.gradients, self._follows_run = gradients, follows_run
        self._computed: Any = None

    @property
    def remarks(self) -> list[str]:
        """Nothing."""
        return []

    def begin(self, run: Run) -> None:
        """Nothing is to be done."""

    def close(self) -> None:
        """Nothing was made."""

    def of_epoch(self, loader: Any) -> Iterator[Any]:
        """The batches."""
        return iter(loader)

    def compute(self, step: Any, backward: Backward) -> None:
        """Compute the gradients of a batch."""
        self._computed = backward(step)

    def finish(self) -> StepLoss:
        """Take the mean over the seeds of all ranks' batches."""
        return self.gradients.finish(*self._computed)

    def optimize(self, optimize: Callable[[], None]) -> None:
        """Take an optimisation step."""
        optimize()

    def dropout_key(self, config: TrainConfig, epoch: int, batch: Batch) -> DropoutKey | None:
        """Return None: torch draws."""
        return None

    def drawing(self, config: TrainConfig, epoch: int, batch: Batch) -> AbstractContextManager[None]:
        """Numbers that follow from the run, or from the batch."""
        return nullcontext() if self._follows_run else RunGenerator.of_batch(config.random_seed, epoch, batch.batch_id)

    def explaining(self, loader: Any) -> AbstractContextManager[None]:
        """All ranks do the same."""
        return nullcontext()


class SharedBatches(OwnBatches):
    """In each step all ranks have one batch, each the rows that it owns."""

    def dropout_key(self, config: TrainConfig, epoch: int, batch: Batch) -> DropoutKey | None:
        """A mask belongs to a vertex, whichever rank computes its row."""
        return DropoutKey(config.random_seed, epoch, batch.batch_id)

    def drawing(self, config: TrainConfig, epoch: int, batch: Batch) -> AbstractContextManager[None]:
        """Numbers that follow from the batch. Ranks wait for each other meanwhile, so that none is kept waiting."""
        if not self._follows_run:
            RunGenerator.follow_batch(config.random_seed, epoch, batch.batch_id)
        return nullcontext()


class WhoeverIsFree(OwnBatches):
    """A step is a fixed list of batches, each of which is trained by a rank that is free.

    Parameters
    ----------
    gradients : FactoredGradients
    """

    def __init__(self, gradients: FactoredGradients) -> None:
        super().__init__(gradients, follows_run=False)
        self._kept, self._comm = gradients, gradients.comm
        self._loader: Any = None
        self._roles = ""

    @property
    def remarks(self) -> list[str]:
        """How many ranks sample, and why."""
        return [self._roles] if self._roles else []

    def begin(self, run: Run) -> None:
        """Choose how many ranks sample, by a measured trial, unless that is set."""
        self._loader = run.loader
        if run.config.sampler_ranks is None and not self._roles:
            count = measured_samplers(run.loader, self.gradients.model, run.backward)
            run.loader.set_sampler_ranks(count.samplers)
            self._roles = count.reason

    def of_epoch(self, loader: Any) -> Iterator[Any]:
        """For each step the batches that this rank trains."""
        steps: Iterator[Any] = loader.steps()
        return steps

    def compute(self, step: Any, backward: Backward) -> None:
        """Compute the gradients of each batch, and keep them apart. Others are told of a failure at once."""
        try:
            for batch in step:
                self._train(batch, backward)
        except BaseException as error:
            told = on_rank(error, self._comm.rank)
            self._fail(told)
            if isinstance(error, Exception) and not hasattr(error, "raised_by"):
                raise told from error
            raise

    def finish(self) -> StepLoss:
        """Take the mean over the seeds of all batches, added in their order."""
        return self._kept.finish_step()

    @contextmanager
    def explaining(self, loader: Any) -> Iterator[None]:
        """Say which ranks sample and which train."""
        try:
            yield
        except BaseException as error:
            self._fail(on_rank(error, self._comm.rank))  # others may wait for a batch, or for weights
            if isinstance(error, (CommunicationError, RankError)):
                loader.roles.explain(error)  # as they are now: a trial changes them
            raise

    def _train(self, batch: Batch, backward: Backward) -> None:
        loss, num_seeds = backward(batch)
        self._kept.keep(batch.batch_id, loss, num_seeds)

    def _fail(self, error: Exception) -> None:
        self._kept.drop()
        if self._loader is not None:
            self._loader.fail(error)


class Asynchronously(WhoeverIsFree):
    """Each gradient is applied as it comes, within a bound on the age of its weights; steps are where ranks meet.

    Making one is collective.

    Parameters
    ----------
    gradients : FactoredGradients
        Of a copy of the model, which goes forward and back with the weights that this rank got last.
    bound : int
        Updates that may be made between the weights of a gradient and the gradient's own.
    """

    def __init__(self, gradients: FactoredGradients, bound: int) -> None:
        super().__init__(gradients)
        self._rule = StalenessBound(bound)
        self._letters = self._comm.duplicate()
        self._run: Run
        self._updates: Updates

    @property
    def remarks(self) -> list[str]:
        """Who samples, and how stale gradients were."""
        stale = f"the most stale gradient was {self._rule.largest} updates late, of at most {self._rule.bound}"
        return [*super().remarks, *([stale] if self._rule.version else [])]

    @property
    def largest_staleness(self) -> int:
        """Updates that were made between the weights of a gradient and the gradient's own, at most so far."""
        return self._rule.largest

    def begin(self, run: Run) -> None:
        """As where ranks take each step together; collective."""
        super().begin(run)
        self._run = run

    def close(self) -> None:
        """Free the communicator of the letters."""
        self._letters.close()

    def of_epoch(self, loader: Any) -> Iterator[Any]:
        """For each step the batches that this rank trains, each with the newest weights that the bound allows."""
        steps = super().of_epoch(loader)
        while True:
            self._updates = Updates(self._letters, self._run.model, self._run.optimize, self._rule)
            try:  # all ranks have them before any can fail in a step
                step = next(steps, None)
            except BaseException as error:
                self._updates.fail(on_rank(error, self._comm.rank))
                raise
            if step is None:
                self._updates.finish()
                return
            yield step

    def optimize(self, optimize: Callable[[], None]) -> None:
        """Do nothing: rank 0 has taken a step with each gradient as it came."""

    def finish(self) -> StepLoss:
        """Wait until all gradients are applied, and let all ranks have the weights."""
        loss = self._updates.finish()
        for tensor in self._run.model.state_dict().values():
            array = tensor.detach().cpu().numpy()
            tensor.copy_(torch.from_numpy(self._comm.broadcast(array, phase="weights")))
        told = np.array([loss.mean, loss.num_seeds, self._rule.largest, self._rule.version], np.float64)
        mean, num_seeds, largest, version = self._comm.broadcast(told, phase="weights").tolist()
        self._rule.largest, self._rule.version = int(largest), int(version)
        return StepLoss(mean, int(num_seeds))

    def _train(self, batch: Batch, backward: Backward) -> None:
        self._updates.weights(self.gradients.model)
        self._updates.push(self.gradients.model, *backward(batch))

    def _fail(self, error: Exception) -> None:
        super()._fail(error)
        if hasattr(self, "_updates"):
            self._updates.fail(error)


def steps_for(config: TrainConfig, model: torch.nn.Module, comm: Communicator) -> Steps:
    """What a step is with these settings.

    Parameters
    ----------
    config : TrainConfig
    model
        The same on every rank.
    comm : Communicator
        The ranks that train it.
    """
    if config.pipeline == "factored":
        _require_no_buffers(model)
    if config.staleness is not None:
        return Asynchronously(FactoredGradients(copy.deepcopy(model), comm), config.staleness)
    if config.pipeline == "factored":
        return WhoeverIsFree(FactoredGradients(model, comm))
    follows_run = comm.size == 1 and next(model.parameters()).device.type == "cpu"
    if config.shares_batches:
        return SharedBatches(CooperativeGradients(model, comm), follows_run=follows_run)
    return OwnBatches(gradients_for(model, comm), follows_run=follows_run)


def _require_no_buffers(model: torch.nn.Module) -> None:
    """Refuse what a forward pass changes beside the gradients: it would depend on who has trained which batch."""
    name = next((name for name, _ in model.named_buffers()), None)
    if name is not None:
        raise InputError(
            argument="model",
            given=f"one with a buffer, {name!r}, in a factored pipeline",
            expected="parameters alone, such as with LayerNorm in place of BatchNorm",
            hint="The other pipelines train it.",
        )
