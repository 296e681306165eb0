"""Ranks that sample and ranks that train; whichever rank is free trains the next batch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from spsample.comm import collective
from spsample.common.memory import available_memory
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import CommunicationError, InputError, RankError, on_rank
from spsample.features import FeatureSource, score
from spsample.features.cached import replacement_named
from spsample.features.keeper import left_beside_loader, rows_beside
from spsample.loading import Batch
from spsample.loading.factored import FactoredLoader, samplers_for
from spsample.pipelines.gradients import FactoredGradients, StepLoss
from spsample.pipelines.pipeline import Pipeline
from spsample.pipelines.placement import in_front, placed_features, score_options
from spsample.pipelines.setup import TrainingSetup
from spsample.settings.training import TrainConfig

QUEUE_MEMORY = "1GiB"
"""Of a sampler, where none is given."""

WARM_UP, MEASURED = 1, 4
"""Minibatches that a trial trains before it measures, and of which it takes the median."""

_MIN_SECONDS = 1e-6


class FactoredPipeline(Pipeline):
    """A step is a fixed list of batches, each of which is trained by a rank that is free.

    References
    ----------
    J. Yang et al., GNNLab: a factored system for sample-based GNN training over GPUs, EuroSys 2022.
    """

    SAMPLES_TO_HOST = True

    BATCHES_PER_RANK = 1
    """Batches of a step by default."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._reason = ""  # for the number of samplers

    @property
    def notes(self) -> list[str]:
        """The number of ranks that sample, with the reason, and what a rank that samples caches."""
        return [note for note in (self._reason, self._cache_note) if note]

    @property
    def decisive(self) -> dict[str, Any]:
        """The batches of a step: those that are chosen, too."""
        return {"step_batches": self.loader.batches_per_step}

    def begin(self) -> None:
        """Choose how many ranks sample, by a measured trial, unless that is set."""
        if self.config.sampler_ranks is None and not self._reason:
            sampling, training = self._measured()
            choice = samplers_for(self.comm.size, sampling, training)
            self.loader.set_sampler_ranks(choice.samplers)
            self._reason = choice.reason

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Add to errors which ranks sample and which train."""
        try:
            yield
        except BaseException as error:
            self._fail(on_rank(error, self.comm.rank))  # others may wait for a batch, or for weights
            if isinstance(error, (CommunicationError, RankError)):
                self.loader.roles.explain(error)  # as they are now: a trial changes them
            raise

    def _placed(self) -> Callable[[bool], FeatureSource]:
        source_of, self._cache_note = features_by_role(self.setup)
        return source_of

    def _make_loader(self) -> FactoredLoader:
        return FactoredLoader(
            self.setup.graph,
            self.setup.dataset.train_idx,
            self.setup.sampler,
            batch_size=self.config.batch_size,
            sampler_ranks=self.config.sampler_ranks or 1,
            step_batches=self.config.step_batches or self.BATCHES_PER_RANK * self.comm.size,
            queue_memory=self.config.queue_memory or QUEUE_MEMORY,
            switches=self.config.switches,
            **self._common(),
        )

    def _make_gradients(self, model: torch.nn.Module) -> FactoredGradients:
        name = next((name for name, _ in model.named_buffers()), None)
        if name is not None:  # a forward pass changes it: it would depend on who has trained which batch
            given = f"one with a buffer, {name!r}, in a factored pipeline"
            expected = "parameters alone, such as with LayerNorm in place of BatchNorm"
            raise InputError(argument="model", given=given, expected=expected, hint="The other pipelines train it.")
        return FactoredGradients(model, self.comm)

    @property
    def _follows_run(self) -> bool:
        return False

    def _steps(self) -> Iterator[Any]:
        """For each step the batches that this rank trains."""
        return iter(self.loader.steps())

    def _compute(self, step: Any) -> None:
        """Compute the gradients of each batch, and keep them apart. Other ranks learn of a failure at once."""
        try:
            for batch in step:
                self._train(batch)
        except BaseException as error:
            failure = on_rank(error, self.comm.rank)
            self._fail(failure)
            if isinstance(error, Exception) and not hasattr(error, "raised_by"):
                raise failure from error
            raise

    def _finish(self) -> StepLoss:
        """Take the mean over the seeds of all batches, added in their order."""
        return StepLoss(*self.gradients.finish_step())

    def _train(self, batch: Batch) -> None:
        loss, num_seeds = self.backward(batch)
        self.gradients.keep(batch.batch_id, loss, num_seeds)

    def _fail(self, error: Exception) -> None:
        self.gradients.drop()
        self.loader.fail(error)

    def _measured(self) -> tuple[float, float]:
        """Mean seconds over the ranks of a minibatch: to sample, and to gather its features and train; collective.

        Each rank samples the first bulk of an epoch that is never trained, and goes forward and back with a few of its
        minibatches. No weight changes, and no sample or mask of the run does.
        """
        with collective(self.comm, call="a trial of sampling and training"), torch.random.fork_rng(devices=[]):
            seconds = np.array(self._trial_seconds())
        self.gradients.model.zero_grad(set_to_none=True)
        self.loader.features.reset_counts()
        sampling, training = (self.comm.all_reduce(seconds, phase="set-up") / self.comm.size).tolist()
        return sampling, training

    def _trial_seconds(self) -> tuple[float, float]:
        start = time.perf_counter()
        bulk = self.loader.trial_bulk()
        sampling = (time.perf_counter() - start) / max(len(bulk), 1)
        training: list[float] = []
        for minibatch in bulk[: WARM_UP + MEASURED]:
            start = time.perf_counter()
            self.backward(self.loader.trial_batch(minibatch))
            training.append(time.perf_counter() - start)
        usual = statistics.median(training[WARM_UP:] or training or [_MIN_SECONDS])
        return max(sampling, _MIN_SECONDS), max(usual, _MIN_SECONDS)


# ---------------------------------------------------------------------------------------------------------- placement


def features_by_role(setup: TrainingSetup) -> tuple[Callable[[bool], FeatureSource], str]:
    """Return where ranks of a factored run gather from; collective: they score vertices and look at memory together.

    That is a function, which makes the source of a rank by whether it samples and is not collective, and a note on what
    a rank that samples caches: none where roles make no difference.

    A rank that samples keeps the graph, too: its cache has what is left of the budget; with ``"auto"`` what memory its
    queue leaves. Where that is less than a row, or where it never trains, it has none.

    Raises
    ------
    InputError
        If vertices cannot be scored so.
    """
    features, graph, config, workload = setup.features, setup.graph, setup.config, setup.workload
    if config.cache_budget is None or config.backend == "cuda":
        placed = placed_features(setup)
        return lambda samples: placed, ""
    budget, taken, by_what = _budget(features, workload, config)
    left = max(budget - taken, 0) if config.switches else 0
    map_bytes = replacement_named(config.cache_replacement).map_bytes(features.num_rows, features.stored_row_bytes)
    kept = rows_beside(features, left, map_bytes)
    is_chosen = np.array([rows_beside(features, budget, map_bytes) < features.num_rows or 0 < kept < features.num_rows])
    scores: Any = np.zeros(features.num_rows)
    if graph.comm.all_reduce(is_chosen.astype(np.int64), "max", phase="set-up")[0]:
        scores = score(config.cache_score, **workload, **score_options(config))

    is_measured = config.cache_budget == "auto"

    def source_of(samples: bool) -> FeatureSource:
        size = left if samples else budget
        size = min(size, available_memory()) if is_measured else size  # less may be left by now
        if (samples or is_measured) and rows_beside(features, size, map_bytes) == 0:
            return features
        return in_front(features, size, scores, config, {})

    note = ""
    if config.switches:
        has = f"{format_bytes(left)} for its cache" if kept else "no cache"
        note = f"a rank that samples has {has}: {by_what} takes {format_bytes(taken)} of {format_bytes(budget)}"
    return source_of, note


def _budget(features: FeatureSource, workload: dict[str, Any], config: TrainConfig) -> tuple[int, int, str]:
    """Bytes for a cache, how many of them a rank that samples needs otherwise, and for what."""
    graph = workload["graph"]
    if config.cache_budget == "auto":  # measured beside the graph
        queue = require_bytes("queue_memory", config.queue_memory or QUEUE_MEMORY)
        looks_ahead = replacement_named(config.cache_replacement).may_look_ahead
        return left_beside_loader(features, workload, graph.comm, looks_ahead), queue, "the queue"
    graph_bytes = 0 if graph.host is None else graph.host.nbytes
    return require_bytes("cache_budget", config.cache_budget), graph_bytes, "the graph"


PIPELINE = FactoredPipeline
