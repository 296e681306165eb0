"""Training on bulk-sampled minibatches."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from spsample.comm import collective
from spsample.comm.objects import require_same
from spsample.common.checks import require_choice, require_type
from spsample.common.units import require_bytes
from spsample.data import Dataset
from spsample.data.partition.parts import require_reach
from spsample.distributed import ProcessGrid
from spsample.errors import InputError
from spsample.features import CacheCounts, FeatureSource, FeatureStore
from spsample.loading import Batch
from spsample.nn.blocks import BlockMaker, aggregation_for
from spsample.nn.exchange import require_exchanged
from spsample.nn.tensors import as_tensor
from spsample.sampling.arguments import require_sampler
from spsample.settings.training import TrainConfig
from spsample.sparse import keys
from spsample.store.base_graph import require_graph
from spsample.timeline import Phases, Timeline, waiting_for
from spsample.training.callbacks import Callback
from spsample.training.devices import device_for
from spsample.training.evaluation import VerticesHere, VerticesOnRanks, layer_by_layer, sampled_logits
from spsample.training.generator import RunGenerator
from spsample.training.gradients import first_ranks_model
from spsample.training.loaders import loader_for
from spsample.training.memory import keep_memory
from spsample.training.metrics import METRICS
from spsample.training.models import GNN, ModelConfig, build_model
from spsample.training.optimisation import Schedule, make_optimizer
from spsample.training.placing import placed_features
from spsample.training.placing_by_role import PlacedByRole, placed_by_role
from spsample.training.progress import Progress
from spsample.training.results import EpochRecord, TrainResult
from spsample.training.states import check_state, reading_state
from spsample.training.steps import Run, steps_for
from spsample.training.threads import torch_threads

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from spsample.sampling import Sampler

__all__ = ["Trainer"]


class Trainer:
    """Train one model on one data set with one sampler.

    A sampler whose layers are aggregated by their values (``sampler.aggregation``: layer-wise ones) works on the
    row-normalised graph, so that the values estimate the mean over the neighbours, which is taken of the entries
    sampled where a sampler states the mean.

    Where the data set's graph is a distributed one, all ranks train one model, and every call is collective: a step
    takes one batch of each rank, and its gradient is that of the mean loss over the seeds of all of them, by torch's
    DDP over NCCL and through the graph's communicator elsewhere, in the order of the ranks. Weights begin as rank 0
    drew them. Dropout then depends on the batch, not on the rank. What one rank fails with all raise.

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
        timeline: Timeline | None = None,
    ) -> None:
        _check_arguments(dataset, sampler, model, config, callbacks)
        self.comm = dataset.graph.comm
        self.features = _feature_source(dataset)
        self.dataset = dataset
        self._require_same_split()
        self.sampler = sampler
        self.config = config
        self.callbacks = list(callbacks)
        self.graph = dataset.graph if aggregation_for(sampler) == "mean" else dataset.graph.normalized("row")
        self.blocks = BlockMaker(dataset.graph, sampler)
        self.test_sampler = _test_sampler(sampler, config.test_sizes)
        self.phases = Phases(("training", "evaluation"), timeline)
        place = self.features, dataset, self.graph, sampler, config
        self._placed = placed_by_role(*place) if config.pipeline == "factored" else placed_features(*place, parts)
        with collective(self.comm, call="the choice of a device"):
            self.device, self._copied_to = device_for(config, self.graph)
        self.loader = loader_for(
            dataset, self.graph, sampler, config, self._placed, parts, timeline, device=self._copied_to
        )
        self._generator = RunGenerator(config.random_seed, self.device)
        self._labels = as_tensor(np.asarray(dataset.y)).to(self.device)
        self.model = first_ranks_model(self.comm, lambda: self._built(model)).to(self.device)
        self.steps = steps_for(config, self.model, self.comm)
        self._rows = ProcessGrid(self.comm) if dataset.graph.is_distributed else None  # of logits
        self.optimizer = make_optimizer(self.model.parameters(), config)
        self.schedule = Schedule(self.optimizer, config)
        self.progress = Progress()
        self._last_weights: dict[str, torch.Tensor] | None = None  # once it is over
        self.settings = self._settings(model)
        self._check_metric()
        self._cache_counts: CacheCounts | None = None  # of the run it was resumed from
        self._seconds: dict[str, float] = {}  # of the run it was resumed from

    @property
    def seconds(self) -> dict[str, float]:
        """Time per phase so far, with that of the run it was resumed from."""
        now = {**self.loader.seconds, **self.phases.seconds}
        return {phase: self._seconds.get(phase, 0.0) + now.get(phase, 0.0) for phase in {**now, **self._seconds}}

    @property
    def remarks(self) -> list[str]:
        """What was chosen for this run, and why, in sentences."""
        placed = self._placed.remark if isinstance(self._placed, PlacedByRole) else ""
        return [*self.steps.remarks, *([placed] if placed else []), *map(str, self.graph.chosen_algorithms)]

    @property
    def cache_counts(self) -> CacheCounts | None:
        """What cached features gave so far, with that of the run it was resumed from; None where none are cached."""
        now = self.loader.cache_counts
        if now is None or self._cache_counts is None:
            return now
        return CacheCounts(*(before + more for before, more in zip(self._cache_counts, now, strict=True)))

    def close(self) -> None:
        """Close the loader, and free the communicators that were made for training; collective, and the last call."""
        self.loader.close()
        self.steps.close()
        if self._rows is not None:
            self._rows.close()

    def fit(self) -> TrainResult:
        """Train to the end, and return the result of the epoch that was best on the validation vertices.

        Called again after an exception of a callback, or Ctrl-C, it goes on with the next batch.
        """
        with self.steps.explaining(self.loader):
            return self._fit()

    def _fit(self) -> TrainResult:
        progress = self.progress
        next_batch = min(progress.next_batch, self.loader.num_batches)
        place = {"epoch": progress.epoch, "next_batch": next_batch}
        self.loader.load_state_dict({**self.loader.state_dict(), **place})
        with keep_memory(), self._generator.in_use(), torch_threads(self.config.stage_threads):
            self.steps.begin(Run(self.config, self.loader, self.model, self._backward, self._optimize))
            try:
                self._tell("on_start")
                while not self.is_over:
                    self._epoch()
            finally:
                self._generator.keep()
        self._take_best()
        result = self._result()
        self._tell("on_end", result)
        return result

    def _take_best(self) -> None:
        """Let the model have the best weights; the last ones are kept for a run that is lengthened."""
        if self._last_weights is None:
            self._last_weights = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.progress.best.weights)

    @property
    def is_over(self) -> bool:
        """Whether all epochs are trained, or patience has run out."""
        return self.progress.epoch >= self.config.epochs or self._stopped_early

    def evaluate(self, kind: str | None = None) -> dict[str, float]:
        """Return the metric on the validation and the test vertices.

        Parameters
        ----------
        kind
            ``"full"`` or ``"sampled"``; what the settings say where None.
        """
        kind = _kind(self.config) if kind is None else require_choice("kind", kind, ("full", "sampled"))
        return self._scores(("val", "test"), kind)

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
            "callbacks": {name: callback.state_dict() for name, callback in self._named_callbacks()},
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
        self._generator.state = state["rng"]
        self._seconds = dict(state["seconds"])
        self.phases.clear()
        counted = state.get("cache_counts")
        self._cache_counts = None if counted is None else CacheCounts(*counted)
        for name, callback in self._named_callbacks():
            callback.load_state_dict(state["callbacks"].get(name, {}))
        if self.is_over:
            self._take_best()

    def _named_callbacks(self) -> Iterator[tuple[str, Callback]]:
        """Callbacks with the names of their types; of several of one type, those after the first are numbered."""
        counts: Counter[str] = Counter()
        for callback in self.callbacks:
            name = type(callback).__name__
            counts[name] += 1
            yield (name if counts[name] == 1 else f"{name} {counts[name]}"), callback

    # ------------------------------------------------------------------------------------------------ the loop

    def _epoch(self) -> None:
        """Train what is left of the epoch, evaluate where it is due, and go on to the next one."""
        progress, steps = self.progress, self.steps.of_epoch(self.loader)
        while True:
            with self._step():
                step = next(steps, None)
                if step is not None:
                    self.steps.compute(step, self._backward)
            if step is None:
                break
            with self.phases.timed("training"), self.comm.agreed("gradients of a training step"):  # all are at it
                with self.phases.part("exchanging gradients"):
                    loss = self.steps.finish()
                self.steps.optimize(self._optimize)
            progress.add_step(loss.mean, loss.num_seeds, self.loader.batches_per_step)
            self._tell("on_step", loss.mean)
        record = self._record()
        in_turn = self._evaluates(record.epoch)
        if record.val is not None:
            progress.consider(record.epoch, record.val, self.model, in_turn=in_turn)
        self.schedule.epoch_over(record.val if in_turn else None)
        progress.close_epoch(record)
        self._tell("on_epoch", record)

    def _step(self) -> AbstractContextManager[None]:
        """Around what each rank has in a step: those that are done wait for the others."""
        step = self.blocks.step()
        return step if self.comm.size == 1 else self.phases.leaving(waiting_for("ranks", "training"), step)

    def _tell(self, event: str, *arguments: Any) -> None:
        """Call that method of all callbacks."""
        with collective(self.comm, call="callbacks of training"):
            for callback in self.callbacks:
                getattr(callback, event)(self, *arguments)

    def _backward(self, batch: Batch) -> tuple[torch.Tensor, int]:
        """Go forward and back with a batch: the mean loss over its seeds here, and their number."""
        with self.phases.timed("training", batch.batch_id):
            self.steps.gradients.model.zero_grad(set_to_none=True)
            place = self.config, self.progress.epoch, batch
            with self.phases.part("forward"):
                x, blocks = self.blocks.inputs(batch, self.model, self.steps.dropout_key(*place))
                with self.steps.drawing(*place):
                    logits = self.steps.gradients.model(x, blocks)
                require_exchanged(*(block.exchange for block in blocks))
                loss = _loss(logits, self._labels[as_tensor(batch.seeds).long().to(self.device)])
            with self.phases.part("backward"):
                self.steps.gradients.prepare(loss, len(batch.seeds) / max(batch.num_seeds, 1))
            return loss, len(batch.seeds)

    def _optimize(self) -> None:
        """Take one optimisation step, with the gradients that the parameters have."""
        with self.phases.part("optimisation"):
            if self.config.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
            self.optimizer.step()

    def _record(self) -> EpochRecord:
        epoch, mean = self.progress.epoch, self.progress.loss_sum / self.progress.num_seeds
        if not math.isfinite(mean):
            raise self._divergence(f"a loss of {mean} in epoch {epoch}")
        due = self._evaluates(epoch) or epoch + 1 == self.config.epochs
        val = self._scores(("val",), _kind(self.config))["val"] if due else None
        return EpochRecord(epoch, mean, val, self.schedule.learning_rate)

    def _evaluates(self, epoch: int) -> bool:
        """Whether it is an epoch's turn to be evaluated, whether or not it is the last one."""
        return (epoch + 1) % self.config.eval_every == 0

    @property
    def _stopped_early(self) -> bool:
        return self.progress.best.is_older_than(self.config.patience)

    # ---------------------------------------------------------------------------------------------- evaluation

    def _scores(self, names: Sequence[str], kind: str) -> dict[str, float]:
        metric = METRICS[self.dataset.metric]
        ids = {name: getattr(self.dataset, f"{name}_idx") for name in names}
        with self.phases.timed("evaluation"):
            logits = self._logits(kind, np.concatenate(list(ids.values())))
            if not np.isfinite(logits).all():
                raise self._divergence("logits that are not finite")
            ends = np.cumsum([len(name) for name in ids.values()])[:-1]
            split = np.split(logits, ends)
            return {name: metric(rows, self.dataset.y[ids[name]]) for name, rows in zip(names, split, strict=True)}

    def _require_same_split(self) -> None:
        """Refuse vertices or labels that differ between ranks."""
        if self.comm.size == 1:
            return
        ids = {f"{name}_idx": np.asarray(getattr(self.dataset, f"{name}_idx")) for name in ("train", "val", "test")}
        with collective(self.comm, call="a look at the labels"):
            labels = np.asarray(self.dataset.y)[np.concatenate(list(ids.values()))]
        require_same(self.comm, **ids, labels=labels)

    def _check_metric(self) -> None:
        """Refuse a metric that the labels do not allow before anything is trained."""
        metric, outputs = METRICS[self.dataset.metric], _num_outputs(self.dataset)
        for subset in ("val", "test"):
            y = self.dataset.y[getattr(self.dataset, f"{subset}_idx")]
            metric(np.zeros((len(y), outputs), dtype=np.float32), y)

    def _divergence(self, given: str) -> InputError:
        return InputError(
            argument="learning_rate",
            given=f"{self.config.learning_rate}, and {given}",
            expected="one small enough for the loss to stay finite",
            hint="Features that are not finite do this too.",
        )

    def _logits(self, kind: str, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits of these vertices, on every rank; each computes its share."""
        if kind == "full":
            budget, graph = require_bytes("evaluation_memory", self.config.evaluation_memory), self.dataset.graph
            vertices = VerticesHere(graph) if self._rows is None else VerticesOnRanks(graph, self._rows)
            blocks = self.blocks.whole_rows()
            return layer_by_layer(self._model_on_host(), vertices, self.features, blocks, budget).gather(ids)
        features = self.features if self.loader.features is None else self.loader.features
        return sampled_logits(
            self.model,
            self.graph,
            ids,
            self.test_sampler,
            features,
            blocks=self.blocks,
            batch_size=self.config.batch_size,
            random_seed=self.config.random_seed,
            backend=self.config.backend,
            device=self._copied_to,
        )

    def _model_on_host(self) -> GNN:
        """Where all neighbours of a vertex are aggregated."""
        return self.model if self.device.type == "cpu" else copy.deepcopy(self.model).cpu()

    def _result(self) -> TrainResult:
        return TrainResult(
            dataset=self.dataset.name,
            sampler=repr(self.sampler),
            metric=self.dataset.metric,
            best_epoch=self.progress.best.epoch,
            num_parameters=sum(p.numel() for p in self.model.parameters()),
            bayes_rate=self.dataset.meta.get("bayes_rate"),
            sampled=self.evaluate("sampled") if self.config.evaluation == "both" else None,
            settings=self.settings,
            stopped_early=self._stopped_early,
            history=list(self.progress.history),
            **self.evaluate(),
            seconds=self.seconds,
            cache=None if self.cache_counts is None else self.cache_counts.as_dict(),
            remarks=self.remarks,
        )

    # -------------------------------------------------------------------------------------------------- set-up

    def _built(self, model: ModelConfig) -> GNN:
        with self._generator.in_use():
            return build_model(self.features.dim, _num_outputs(self.dataset), len(self.sampler.sizes), model)

    def _settings(self, model: ModelConfig) -> dict[str, Any]:
        """What decides the result, as plain values: a checkpoint of other settings is refused."""
        return {
            "dataset": self.dataset.name,
            "split": self.dataset.split,
            "metric": self.dataset.metric,
            "features": _fingerprint(self.features),
            "sampler": repr(self.sampler),
            **asdict(model),
            **self.config.decisive(),
            **self._step_batches(),
        }

    def _step_batches(self) -> dict[str, int]:
        """The batches of a step, where they are an option."""
        return {"step_batches": self.loader.batches_per_step} if self.config.pipeline == "factored" else {}


def _check_arguments(
    dataset: Dataset, sampler: Sampler, model: ModelConfig, config: TrainConfig, callbacks: Sequence[Callback]
) -> None:
    require_type("dataset", dataset, Dataset, "a data set")
    _check_sampler(sampler)
    require_reach(dataset, sampler)
    require_type("model", model, ModelConfig, "a ModelConfig")
    require_type("config", config, TrainConfig, "a TrainConfig")
    require_type("callbacks", callbacks, (list, tuple), "a list of callbacks")
    for number, callback in enumerate(callbacks):
        require_type(f"callbacks[{number}]", callback, Callback, "a Callback")
    require_choice("metric", dataset.metric, sorted(METRICS))
    require_graph(dataset.graph)


def _check_sampler(sampler: Sampler) -> None:
    require_sampler(sampler)
    if not sampler.include_targets:
        raise InputError(
            argument="sampler",
            given=repr(sampler),
            expected="include_targets=True",
            hint="The models add each target's own features to its neighbours'.",
        )


def _test_sampler(sampler: Sampler, sizes: Sequence[int] | None) -> Sampler:
    """The sampler with other sizes."""
    if sizes is None:
        return sampler
    if len(sizes) != len(sampler.sizes):
        given, expected = f"{len(sizes)} sizes", f"as many as the model has layers: {len(sampler.sizes)}"
        raise InputError(argument="test_sizes", given=given, expected=expected)
    return sampler.with_sizes(sizes)


def _feature_source(dataset: Dataset) -> FeatureSource:
    x: Any = dataset.require_training_data()
    return x if isinstance(x, FeatureSource) else FeatureStore(x)


def _num_outputs(dataset: Dataset) -> int:
    return int(dataset.y.shape[1]) if dataset.y.ndim == 2 else dataset.num_classes


def _kind(config: TrainConfig) -> str:
    return "sampled" if config.evaluation == "sampled" else "full"


def _loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if len(y) == 0:  # of a rank without seeds: no gradient, but one of each parameter
        return logits.sum() * 0.0
    if y.ndim == 2:
        return functional.binary_cross_entropy_with_logits(logits, y.float())
    return functional.cross_entropy(logits, y)


def _fingerprint(features: FeatureSource) -> str:
    """Hash of 64 rows spread over all: tells scaled features from others without reading them all."""
    rows = np.linspace(0, features.num_rows - 1, num=min(64, features.num_rows)).astype(np.int64)
    return sha256(as_tensor(features.gather(rows)).cpu().numpy().tobytes()).hexdigest()[:16]
