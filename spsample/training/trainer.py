"""Training on bulk-sampled minibatches."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from spsample.errors import InputError
from spsample.features import FeatureStore
from spsample.loading import Batch, BulkLoader
from spsample.sampling import GraphSAGE
from spsample.store.validation import require_choice, require_int
from spsample.training.blocks import BLOCK_MAKERS
from spsample.training.evaluation import full_logits
from spsample.training.metrics import METRICS
from spsample.training.models import ModelConfig, build_model

if TYPE_CHECKING:
    from spsample.data import Dataset
    from spsample.sampling import Sampler

__all__ = ["EpochRecord", "TrainConfig", "TrainResult", "Trainer", "aggregation_for"]


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the optimisation.

    Attributes
    ----------
    epochs
        Passes over the training vertices.
    batch_size, bulk_size
        Seeds per minibatch, and minibatches sampled at once.
    learning_rate, weight_decay
        Of Adam.
    eval_every
        Epochs between two evaluations; the last epoch is always evaluated.
    random_seed
        Decides initial weights, dropout, orders and samples.
    backend
        Of the sampling, None for the fastest one.
    """

    epochs: int = 30
    batch_size: int = 512
    bulk_size: int = 64
    learning_rate: float = 0.005
    weight_decay: float = 0.0
    eval_every: int = 1
    random_seed: int = 0
    backend: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be trained with; the loader checks the sizes it gets."""
        for name in ("epochs", "eval_every"):
            require_int(name, getattr(self, name), minimum=1)
        require_int("random_seed", self.random_seed, minimum=0, maximum=2**64 - 1)
        if not self.learning_rate > 0:
            raise InputError(argument="learning_rate", given=str(self.learning_rate), expected="a positive number")
        if not self.weight_decay >= 0:
            raise InputError(argument="weight_decay", given=str(self.weight_decay), expected="a number of at least 0")


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: mean training loss, and the metric on the validation vertices where it was evaluated."""

    epoch: int
    loss: float
    val: float | None = None


@dataclass(frozen=True)
class TrainResult:
    """What came of a training run.

    Attributes
    ----------
    dataset, sampler, metric
        What was trained, in words.
    val, test
        The metric with full neighbourhoods, of the weights that were best on the validation vertices.
    best_epoch
        The epoch of these weights, from 0.
    num_parameters
        Of the model.
    seconds
        Time per phase: ``sampling``, ``features``, ``training`` (forward, backward, step), ``evaluation``.
    bayes_rate
        The best accuracy possible, where it is known.
    history
        All epochs.
    """

    dataset: str
    sampler: str
    metric: str
    val: float
    test: float
    best_epoch: int
    num_parameters: int
    seconds: dict[str, float]
    bayes_rate: float | None = None
    history: list[EpochRecord] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain Python values, ready for JSON."""
        return asdict(self)


def aggregation_for(sampler: Sampler) -> str:
    """Return how a model aggregates what ``sampler`` gives: the ``"mean"``, or by the ``"values"``."""
    return "mean" if isinstance(sampler, GraphSAGE) else "values"


def _check_sampler(sampler: Sampler) -> None:
    if not sampler.include_targets:
        raise InputError(
            argument="sampler",
            given=repr(sampler),
            expected="include_targets=True",
            hint="The models add each target's own features to its neighbours'.",
        )


class Trainer:
    """Train one model on one data set with one sampler.

    Layer-wise samplers work on the row-normalised graph, so that their values estimate the mean over the
    neighbours, which GraphSAGE takes of the entries it sampled.

    Parameters
    ----------
    dataset
        With features, labels and a split.
    sampler
        Its number of layers is the model's; with ``include_targets``, which self connections need.
    model
        Settings of the model.
    config
        Settings of the optimisation.
    on_epoch
        Called after every epoch, e.g. to show progress.

    Raises
    ------
    InputError
        If the data set cannot be trained on, or a setting is out of range.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: Sampler,
        model: ModelConfig,
        config: TrainConfig,
        on_epoch: Callable[[EpochRecord], None] | None = None,
    ) -> None:
        _check_sampler(sampler)
        require_choice("metric", dataset.metric, sorted(METRICS))
        self.features = FeatureStore(dataset.require_training_data())
        self.dataset = dataset
        self.sampler = sampler
        self.config = config
        self.on_epoch = on_epoch
        self.aggregation = aggregation_for(sampler)
        self.graph = dataset.graph if self.aggregation == "mean" else dataset.graph.normalized("row")
        self.loader = self._make_loader()
        with self._seeded():
            self.model = build_model(self.features.dim, dataset.num_classes, len(sampler.sizes), model)
        self.seconds = {"training": 0.0, "evaluation": 0.0}

    def fit(self) -> TrainResult:
        """Train, and return the result of the epoch that was best on the validation vertices."""
        optimizer = torch.optim.Adam(
            self.model.parameters(), lr=self.config.learning_rate, weight_decay=self.config.weight_decay
        )
        history: list[EpochRecord] = []
        best_epoch, best_val, best_weights = -1, float("-inf"), {}
        with self._seeded():
            for epoch in range(self.config.epochs):
                record = self._epoch(epoch, optimizer)
                history.append(record)
                if record.val is not None and record.val > best_val:
                    best_epoch, best_val = epoch, record.val
                    best_weights = copy.deepcopy(self.model.state_dict())
                if self.on_epoch is not None:
                    self.on_epoch(record)
        self.model.load_state_dict(best_weights)
        return self._result(best_epoch, history)

    def evaluate(self) -> dict[str, float]:
        """Return the metric on the validation and the test vertices, with full neighbourhoods."""
        metric = METRICS[self.dataset.metric]
        with self._timed("evaluation"):
            logits = full_logits(self.model, self.graph, self.features, self.aggregation)
            parts = {"val": self.dataset.val_idx, "test": self.dataset.test_idx}
            return {name: metric(logits[ids], self.dataset.y[ids]) for name, ids in parts.items()}

    def _make_loader(self) -> BulkLoader:
        return BulkLoader(
            self.graph,
            self.dataset.train_idx,
            self.sampler,
            batch_size=self.config.batch_size,
            bulk_size=self.config.bulk_size,
            features=self.features,
            labels=self.dataset.y,
            random_seed=self.config.random_seed,
            backend=self.config.backend,
        )

    def _epoch(self, epoch: int, optimizer: torch.optim.Optimizer) -> EpochRecord:
        self.loader.set_epoch(epoch)
        total, count = 0.0, 0
        for batch in self.loader:
            with self._timed("training"):
                total += self._step(batch, optimizer) * len(batch.seeds)
            count += len(batch.seeds)
        if not math.isfinite(total):
            raise InputError(
                argument="learning_rate",
                given=f"{self.config.learning_rate}, and a loss of {total / count} in epoch {epoch}",
                expected="one small enough for the loss to stay finite",
            )
        due = (epoch + 1) % self.config.eval_every == 0 or epoch + 1 == self.config.epochs
        return EpochRecord(epoch, total / count, self.evaluate()["val"] if due else None)

    def _step(self, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
        """Take one optimisation step; return the mean loss over the seeds."""
        make_block = BLOCK_MAKERS[self.aggregation]
        blocks = [make_block(layer.adj) for layer in batch.layers]
        logits = self.model(torch.from_numpy(batch.x), blocks)
        loss = functional.cross_entropy(logits, torch.from_numpy(batch.y))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    def _result(self, best_epoch: int, history: list[EpochRecord]) -> TrainResult:
        return TrainResult(
            dataset=self.dataset.name,
            sampler=repr(self.sampler),
            metric=self.dataset.metric,
            best_epoch=best_epoch,
            num_parameters=sum(p.numel() for p in self.model.parameters()),
            bayes_rate=self.dataset.meta.get("bayes_rate"),
            history=history,
            **self.evaluate(),
            seconds={**self.loader.seconds, **self.seconds},
        )

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Seed torch's global generator within, and leave it as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.random_seed)
            yield

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start
