"""`Pipeline`: the common part of the pipelines of a training run, and what each of them defines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from spsample.comm import collective
from spsample.distributed import ProcessGrid
from spsample.loading import Batch, BulkLoader
from spsample.loading.copies import samples_on_device
from spsample.loading.parts import PartLoader
from spsample.nn.blocks import require_exchanged
from spsample.nn.dropout import DropoutKey
from spsample.nn.tensors import as_tensor
from spsample.pipelines.gradients import StepLoss
from spsample.pipelines.placement import biased_sampler, placed_copies, placed_features
from spsample.pipelines.process import RunGenerator
from spsample.pipelines.setup import TrainingSetup, device_for
from spsample.timeline import waiting_for


class Pipeline(ABC):
    """Makes the batches of a run, and takes the steps of its optimiser.

    Making one is collective: ranks place features. Then come, in this order, `open` and `attach`; and `begin`,
    before the first step.

    Parameters
    ----------
    setup : TrainingSetup

    Attributes
    ----------
    loader
        Of the train vertices.
    devices : Devices
        Where the model is, and where batches are copied.
    gradients : Gradients
        Its model is called for each batch.
    """

    SAMPLES_TO_HOST = False
    """Whether batches come to the host wherever they are sampled, to travel to other ranks."""

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup, self.config, self.comm = setup, setup.config, setup.comm
        self._grid: ProcessGrid | None = None  # of copies on ranks
        self._notes: list[str] = []
        is_alone = setup.graph.comm.size < self.comm.size  # on its own part: what it fails with, all raise
        with collective(self.comm, call="placement of features") if is_alone else nullcontext():
            self._features: Any = self._placed()
        if self.config.biased is not None:
            self.setup = replace(setup, sampler=biased_sampler(setup, self._features))
        self.loader: Any
        self.gradients: Any
        self._model: torch.nn.Module
        self._optimizer: torch.optim.Optimizer
        self._labels: torch.Tensor
        self._epoch = 0

    # ------------------------------------------------------------------------------------------------------ set-up

    def open(self) -> None:
        """Choose devices and make the loader; collective."""
        samples_there = not self.SAMPLES_TO_HOST and samples_on_device(self.setup.graph, self.config.backend)
        with collective(self.comm, call="the choice of a device"):
            self.devices = device_for(self.config, self.comm, samples_there=samples_there)
        self.loader = self._make_loader()

    def attach(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Take what is trained; collective.

        Parameters
        ----------
        model
            On the device, with the same weights on every rank.
        optimizer
            Of its parameters.
        """
        self._model, self._optimizer = model, optimizer
        self._labels = as_tensor(np.asarray(self.setup.dataset.y)).to(self.devices.model)
        self.gradients = self._make_gradients(model)

    def begin(self) -> None:  # noqa: B027
        """Get ready for the first step; collective."""

    def close(self) -> None:
        """Close the loader, and free what was made for training; collective."""
        self.loader.close()
        if self._grid is not None:
            self._grid.close()

    @property
    def notes(self) -> list[str]:
        """Choices of the pipeline, with the reasons, in sentences."""
        return self._notes

    @property
    def decisive(self) -> dict[str, Any]:
        """Choices of the pipeline that decide the result of a run, beside its settings."""
        return {}

    def _placed(self) -> Any:
        """Return the source of the features of batches; collective."""
        if self.config.copies is None:
            return placed_features(self.setup)
        self._grid = ProcessGrid(self.comm)
        features, note = placed_copies(self.setup, self._grid)
        self._notes.append(note)
        return features

    def _make_loader(self) -> Any:
        setup, config = self.setup, self.config
        what = setup.graph, setup.dataset.train_idx, setup.sampler
        options = {
            "fetch": config.fetch,
            "prefetch_budget": config.prefetch_budget,
            "stage_threads": config.stage_threads,
            **self._common(),
            **self._own_options(),
        }
        if setup.graph.comm.size < self.comm.size:
            return PartLoader(self.comm, *what, **options)
        return BulkLoader(*what, **{"batches": config.batches, "parts": setup.parts, **options})

    def _own_options(self) -> dict[str, Any]:
        """Options of the loader in which this pipeline differs from others."""
        return {"batch_size": self.config.batch_size, "prefetch": self.config.prefetch}

    def _common(self) -> dict[str, Any]:
        """Options that every loader has."""
        return {
            "bulk_size": self.config.bulk_size,
            "memory_budget": self.config.memory_budget,
            "features": self._features,
            "random_seed": self.config.random_seed,
            "backend": self.config.backend,
            "device": self.devices.batches,
            "timeline": self.setup.phases.timeline,
        }

    @abstractmethod
    def _make_gradients(self, model: torch.nn.Module) -> Any:
        """Make the object that puts the gradients of all ranks together."""

    # -------------------------------------------------------------------------------------------------------- steps

    def epoch(self, number: int) -> Iterator[StepLoss]:
        """Train what is left of an epoch: the loss of each step, once its weights are updated; collective."""
        self._epoch = number
        steps = self._steps()
        while True:
            together = self.setup.blocks.step()
            if self.comm.size > 1:  # ranks that are done wait for the others
                together = self.setup.phases.leaving(waiting_for("ranks", "training"), together)
            with together:
                step = next(steps, None)
                if step is not None:
                    self._compute(step)
            if step is None:
                return
            with self.setup.phases.timed("training"), self.comm.agreed("gradients of a training step"):
                with self.setup.phases.part("exchanging gradients"):
                    loss = self._finish()
                self._update()
            yield loss

    def explaining(self) -> AbstractContextManager[None]:
        """Around a run: errors of ranks name the part that these ranks have."""
        return nullcontext()

    def backward(self, batch: Batch) -> tuple[torch.Tensor, int]:
        """Go forward and back with a batch: the mean loss over its seeds here, and their number."""
        setup, model = self.setup, self.gradients.model
        with setup.phases.timed("training", batch.batch_id):
            model.zero_grad(set_to_none=True)
            with setup.phases.part("forward"):
                x, blocks = setup.blocks.inputs(batch, self._model, self._dropout_key(batch))
                with self._drawing(batch):
                    logits = model(x, blocks)
                require_exchanged(*(block.exchange for block in blocks))
                loss = _loss(logits, self._labels[as_tensor(batch.seeds).long().to(self.devices.model)])
            with setup.phases.part("backward"):
                self.gradients.prepare(loss, len(batch.seeds) / max(batch.num_seeds, 1))
            return loss, len(batch.seeds)

    def optimize(self) -> None:
        """Take one optimisation step, with the gradients that the parameters have."""
        with self.setup.phases.part("optimisation"):
            if self.config.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self._model.parameters(), self.config.clip_norm)
            self._optimizer.step()

    def _steps(self) -> Iterator[Any]:
        """Iterate over the parts of the steps of an epoch that are this rank's."""
        return iter(self.loader)

    def _compute(self, step: Any) -> None:
        """Compute the gradients of what this rank has of a step."""
        self._computed = self.backward(step)

    def _finish(self) -> StepLoss:
        """Put the gradients of all ranks together; collective."""
        return StepLoss(*self.gradients.finish(*self._computed))

    def _update(self) -> None:
        """Take an optimisation step with them."""
        self.optimize()

    def _dropout_key(self, batch: Batch) -> DropoutKey | None:
        """Return the key of masks by vertex for a batch; None where torch's numbers make the masks."""
        return None

    @property
    def _follows_run(self) -> bool:
        """True where torch's numbers go on from batch to batch; else they follow from the batch."""
        return self.comm.size == 1 and next(self._model.parameters()).device.type == "cpu"

    def _drawing(self, batch: Batch) -> AbstractContextManager[None]:
        """Around what draws torch's numbers, which follow from the run, or from the batch."""
        if self._follows_run:
            return nullcontext()
        return RunGenerator.of_batch(self.config.random_seed, self._epoch, batch.batch_id)


def _loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if len(y) == 0:  # of a rank without seeds: no gradient, but one of each parameter
        return logits.sum() * 0.0
    if y.ndim == 2:
        return functional.binary_cross_entropy_with_logits(logits, y.float())
    return functional.cross_entropy(logits, y)
