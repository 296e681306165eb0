"""Training on bulk-sampled minibatches."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spsample.comm.objects import require_same
from spsample.common.checks import require_choice, require_type
from spsample.data import Dataset, DatasetPart
from spsample.data.part_stores import require_reach
from spsample.errors import InputError
from spsample.features import CacheCounts, FeatureSource, FeatureStore
from spsample.nn.blocks import BlockMaker, aggregation_for
from spsample.nn.tensors import as_tensor
from spsample.pipelines import TrainingSetup, first_ranks_model, pipeline_for
from spsample.pipelines.process import RunGenerator, keep_memory, torch_threads
from spsample.sampling.arguments import require_sampler
from spsample.settings.training import ModelConfig, TrainConfig
from spsample.sparse import keys
from spsample.store.base_graph import require_graph
from spsample.timeline import Phases, Timeline
from spsample.training.callbacks import Callback, by_name, call_all
from spsample.training.checkpoint import check_state, reading_state
from spsample.training.evaluation import Evaluator, divergence
from spsample.training.metrics import METRICS
from spsample.training.models import GNN, build_model
from spsample.training.optimisation import Schedule, make_optimizer
from spsample.training.progress import Progress
from spsample.training.results import EpochRecord, TrainResult

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from spsample.sampling import Sampler


class Trainer:
    """Train one model on one data set with one sampler.

    A sampler whose layers are aggregated by their values (``sampler.aggregation``: layer-wise ones) works on the
    row-normalised graph, so that the values estimate the mean over the neighbours, which is taken of the entries
    sampled where a sampler states the mean.

    Where the data set's graph is a distributed one, all ranks train one model, and every call is collective. The
    pipeline says what a step is (`spsample.pipelines`); its gradient is that of the mean loss over the seeds of all
    its batches. Weights begin as rank 0 drew them. Dropout then depends on the batch, not on the rank. What one rank
    fails with all raise.

    Parameters
    ----------
    dataset
        With features, labels and a split. Labels in two dimensions, ``(vertices, classes)``, 0 or 1, are several per
        vertex (binary cross-entropy); in one dimension one class each (cross-entropy).
    sampler
        Its number of layers is the model's; with ``include_targets``, which self connections need.
    model
        Settings of the model.
    config
        Settings of the optimisation and the evaluation.
    callbacks
        Called in this order after steps and epochs, see `Callback`. Each rank calls its own: one that writes files
        belongs to rank 0 alone.
    parts
        As of `BulkLoader`: with ``batches="local"`` and a replicated graph, the part of each vertex.
    part
        The part of the data set that this rank trains on, without asking others for vertices or features: as of
        `spsample.data.read_part`. All ranks have one, or none. Only gradients travel, and the whole data set is
        evaluated (PaGraph's trainers).
    timeline
        Where loader and trainer note what they do and when; None for nowhere.

    Attributes
    ----------
    comm
        The ranks.
    phases
        What counts the seconds of training and evaluation since this trainer was made.

    Raises
    ------
    InputError
        If the data set cannot be trained on, or a setting is out of range.

    Examples
    --------
    >>> import spsample as sp
    >>> from spsample.data import planted
    >>> from spsample.training import TrainConfig
    >>> trainer = Trainer(planted(300), sp.GraphSAGE([5]), ModelConfig(hidden=8), TrainConfig(epochs=2))
    >>> result = trainer.fit()
    >>> len(result.history), trainer.progress.step
    (2, 2)
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: Sampler,
        model: ModelConfig,
        config: TrainConfig,
        callbacks: Sequence[Callback] = (),
        *,
        parts: ArrayLike | None = None,
        part: DatasetPart | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        _check_arguments(dataset, sampler, model, config, callbacks)
        self.comm = dataset.graph.comm
        self.dataset = dataset
        self.config = config
        self.callbacks = list(callbacks)
        self.graph = dataset.graph if aggregation_for(sampler) == "mean" else dataset.graph.normalized("row")
        self.phases = Phases(("training", "evaluation"), timeline)
        x: Any = dataset.require_training_data()
        features = x if isinstance(x, FeatureSource) else FeatureStore(x)
        blocks = BlockMaker(dataset.graph, sampler)
        setup = TrainingSetup(dataset, features, self.graph, sampler, config, blocks, self.phases, self.comm, parts)
        self.evaluator = Evaluator(setup)
        require_same(self.comm, part="none" if part is None else "one")
        self.pipeline = pipeline_for(setup if part is None else setup.on_part(part))
        self.sampler = self.pipeline.setup.sampler
        self.pipeline.open()
        self.loader = self.pipeline.loader
        self._generator = RunGenerator(config.random_seed, self.pipeline.devices.model)
        size = features.dim, dataset.num_outputs, len(sampler.sizes)

        def drawn() -> GNN:
            with self._generator.in_use():
                return build_model(*size, model)

        self.model = first_ranks_model(self.comm, drawn).to(self.pipeline.devices.model)
        self.optimizer = make_optimizer(self.model.parameters(), config)
        self.pipeline.attach(self.model, self.optimizer)
        self.schedule = Schedule(self.optimizer, config)
        self.progress = Progress()
        self._last_weights: dict[str, torch.Tensor] | None = None  # once it is over
        self.settings = _decisive_settings(setup, model) | self.pipeline.decisive
        self._seconds_before: dict[str, float] = {}  # of the run that this one was resumed from
        self._counts_before = CacheCounts()

    @property
    def seconds(self) -> dict[str, float]:
        """Time per phase so far, with that of the run it was resumed from."""
        now = {**self.loader.seconds, **self.phases.seconds}
        before = self._seconds_before
        return {phase: before.get(phase, 0.0) + now.get(phase, 0.0) for phase in {**now, **before}}

    @property
    def notes(self) -> list[str]:
        """Choices made for this run, with the reasons, in sentences."""
        return [*self.pipeline.notes, *map(str, self.graph.chosen_algorithms)]

    @property
    def cache_counts(self) -> CacheCounts | None:
        """Counts of cached features so far, with those of the run it was resumed from; None where none are cached."""
        now: CacheCounts | None = self.loader.cache_counts
        return None if now is None else now.plus(self._counts_before)

    def close(self) -> None:
        """Close the loader, and free the communicators that were made for training; collective, and the last call."""
        self.pipeline.close()
        self.evaluator.close()

    def fit(self) -> TrainResult:
        """Train to the end, and return the result of the epoch that was best on the validation vertices.

        Called again after an exception of a callback, or Ctrl-C, it goes on with the next batch.
        """
        with self.pipeline.explaining():
            place = {
                "epoch": self.progress.epoch,
                "next_batch": min(self.progress.next_batch, self.loader.num_batches),
            }
            self.loader.load_state_dict({**self.loader.state_dict(), **place})
            with keep_memory(), self._generator.in_use(), torch_threads(self.config.stage_threads):
                self.pipeline.begin()
                try:
                    call_all(self, "on_start")
                    while not self.is_over:
                        self._epoch()
                finally:
                    self._generator.kept = self._generator.state
            self._take_best()
            result = _result(self)
            call_all(self, "on_end", result)
            return result

    def _take_best(self) -> None:
        """Let the model have the best weights; the last ones are kept for a run that is lengthened."""
        if self._last_weights is None:
            self._last_weights = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.progress.best.weights)

    @property
    def is_over(self) -> bool:
        """True where all epochs are trained, or patience has run out."""
        return self.progress.epoch >= self.config.epochs or self.progress.best.is_older_than(self.config.patience)

    def evaluate(self, kind: str | None = None) -> dict[str, float]:
        """Return the metric on the validation and the test vertices.

        Parameters
        ----------
        kind
            ``"full"`` or ``"sampled"``; that of the settings where None.
        """
        kind = _kind(self.config) if kind is None else require_choice("kind", kind, ("full", "sampled"))
        return self.evaluator.scores(self.model, self.pipeline, ("val", "test"), kind)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a run needs to go on as if it had not been interrupted: plain values and tensors.

        Called between two steps (by callbacks) or after `fit`.
        """
        return {
            "law_version": keys.LAW_VERSION,
            "settings": self.settings,
            "progress": self.progress.state_dict(),
            "model": self.model.state_dict() if self._last_weights is None else self._last_weights,
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rng": self._generator.state,
            "loader": self.loader.state_dict(),
            "seconds": self.seconds,
            "cache_counts": None if self.cache_counts is None else list(self.cache_counts),
            "callbacks": {name: callback.state_dict() for name, callback in by_name(self.callbacks).items()},
        }

    @reading_state()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let `fit` go on where ``state`` was taken.

        The losses that follow are those of the uninterrupted run, bit for bit, with the same version of torch, the same
        number of threads and the same kind of processor. With more epochs than the run had, they are those of a
        longer run from its start.

        Raises
        ------
        InputError
            If ``state`` is of a run with other settings, which are named, or of another version of the law; or if it
            has other epochs, and the schedule of the learning rate depends on their number.
        """
        check_state(state, self.settings, made_of=self.dataset.meta.get("name"))
        self.loader.load_state_dict(state["loader"])
        self.progress = Progress.from_state(state["progress"])
        if state["settings"]["epochs"] != self.config.epochs:
            self.progress.reopen()
        self._last_weights = None
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        if state["rng"] is not None:
            require_type("state", state["rng"], torch.Tensor, "a state of torch's generator in 'rng'")
        self._generator.kept = state["rng"]
        counted = CacheCounts(*(state.get("cache_counts") or ()))
        self._counts_before = counted.plus(
            self.loader.cache_counts or CacheCounts(), -1
        )  # what was trained here before
        self._seconds_before = dict(state["seconds"])
        for phases in (self.loader.phases, self.phases):
            phases.clear()
        for name, callback in by_name(self.callbacks).items():
            callback.load_state_dict(state["callbacks"].get(name, {}))
        if self.is_over:
            self._take_best()

    # ------------------------------------------------------------------------------------------------ the loop

    def _epoch(self) -> None:
        """Train what is left of the epoch, evaluate where it is due, and go on to the next one."""
        progress, config = self.progress, self.config
        for loss in self.pipeline.epoch(progress.epoch):
            progress.add_step(loss.mean, loss.num_seeds, self.loader.batches_per_step)
            call_all(self, "on_step", loss.mean)
        epoch, mean = progress.epoch, progress.loss_sum / progress.num_seeds
        if not math.isfinite(mean):
            raise divergence(config.learning_rate, f"a loss of {mean} in epoch {epoch}")
        val, in_turn = None, (epoch + 1) % config.eval_every == 0
        if in_turn or epoch + 1 == config.epochs:
            val = self.evaluator.scores(self.model, self.pipeline, ("val",), _kind(config))["val"]
            progress.consider(epoch, val, self.model, in_turn=in_turn)
        record = EpochRecord(epoch, mean, val, self.schedule.learning_rate)
        self.schedule.epoch_over(val if in_turn else None)
        progress.close_epoch(record)
        call_all(self, "on_epoch", record)


def _result(trainer: Trainer) -> TrainResult:
    return TrainResult(
        dataset=trainer.dataset.name,
        sampler=repr(trainer.sampler),
        metric=trainer.dataset.metric,
        best_epoch=trainer.progress.best.epoch,
        num_parameters=sum(p.numel() for p in trainer.model.parameters()),
        bayes_rate=trainer.dataset.meta.get("bayes_rate"),
        sampled=trainer.evaluate("sampled") if trainer.config.evaluation == "both" else None,
        settings=trainer.settings,
        stopped_early=trainer.progress.best.is_older_than(trainer.config.patience),
        history=list(trainer.progress.history),
        **trainer.evaluate(),
        seconds=trainer.seconds,
        cache=None if trainer.cache_counts is None else trainer.cache_counts.as_dict(),
        notes=trainer.notes,
    )


def _decisive_settings(setup: TrainingSetup, model: ModelConfig) -> dict[str, Any]:
    """Return the settings that decide the result, as plain values: a checkpoint of others is refused."""
    return {
        "dataset": setup.dataset.name,
        "split": setup.dataset.split,
        "metric": setup.dataset.metric,
        "features": _fingerprint(setup.features),
        "sampler": repr(setup.sampler),
        **asdict(model),
        **setup.config.decisive(),
    }


def _check_arguments(
    dataset: Dataset, sampler: Sampler, model: ModelConfig, config: TrainConfig, callbacks: Sequence[Callback]
) -> None:
    require_type("dataset", dataset, Dataset, "a data set")
    require_sampler(sampler)
    if not sampler.include_targets:
        hint = "The models add each target's own features to its neighbours'."
        raise InputError(argument="sampler", given=repr(sampler), expected="include_targets=True", hint=hint)
    require_reach(dataset, sampler)
    require_type("model", model, ModelConfig, "a ModelConfig")
    require_type("config", config, TrainConfig, "a TrainConfig")
    require_type("callbacks", callbacks, (list, tuple), "a list of callbacks")
    for number, callback in enumerate(callbacks):
        require_type(f"callbacks[{number}]", callback, Callback, "a Callback")
    require_choice("metric", dataset.metric, sorted(METRICS))
    require_graph(dataset.graph)


def _kind(config: TrainConfig) -> str:
    return "sampled" if config.evaluation == "sampled" else "full"


def _fingerprint(features: FeatureSource) -> str:
    """Hash of 64 rows spread over all: it differs between scaled features and others, and few rows are read."""
    rows = np.linspace(0, features.num_rows - 1, num=min(64, features.num_rows)).astype(np.int64)
    return sha256(as_tensor(features.gather(rows)).cpu().numpy().tobytes()).hexdigest()[:16]
