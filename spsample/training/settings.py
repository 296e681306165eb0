"""What a training run is told: `TrainConfig`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from spsample.common.checks import require_choice, require_int, require_number, require_type
from spsample.common.units import require_bytes
from spsample.sampling.sampler import require_sizes
from spsample.training.optimisation import OPTIMIZERS, SCHEDULES

__all__ = ["EVALUATIONS", "TrainConfig"]

EVALUATIONS = ("full", "sampled", "both")

_WITHOUT_EFFECT = ("bulk_size", "memory_budget", "prefetch", "backend")


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the optimisation and the evaluation.

    Attributes
    ----------
    epochs
        Passes over the training vertices, at most.
    batch_size, bulk_size
        Seeds per minibatch, and minibatches sampled at once (or ``"auto"``).
    memory_budget, prefetch
        As in `BulkLoader`: memory for bulks (None: no limit), and bulks that are sampled ahead beside the training.
    optimizer
        ``"adam"``, ``"adamw"`` or ``"sgd"``.
    learning_rate, weight_decay, momentum
        Of the optimizer; momentum for ``"sgd"`` alone.
    schedule
        Of the learning rate, by epoch: ``"constant"``, ``"cosine"`` (to 0 after the last epoch), ``"step"`` or
        ``"plateau"``.
    warmup_epochs
        Epochs in which the learning rate first rises linearly, before the schedule begins.
    decay_every, decay_factor
        ``"step"`` multiplies the learning rate by the factor every so many epochs; ``"plateau"`` where so many
        evaluations in a row were no better than the best.
    clip_norm
        Gradients are scaled down to this norm, all parameters together; not clipped where None.
    patience
        Stop after so many evaluations in a row that were no better than the best; never where None.
    eval_every
        Epochs between two evaluations; the last epoch is always evaluated.
    evaluation
        ``"full"``: with all neighbours, layer by layer; ``"sampled"``; ``"both"``: validation with all, the result with
        either.
    test_sizes
        Sizes of the sampler in sampled evaluation, nearest to the seeds first; those of the training where None.
    evaluation_memory
        Bytes, or a text such as ``"1GiB"``, for what full evaluation computes at once, see `full_logits`.
    random_seed
        Decides initial weights, dropout, orders and samples.
    backend
        Of the sampling, None for the fastest one.

    Raises
    ------
    InputError
        If a value is out of range.
    """

    epochs: int = 30
    batch_size: int = 512
    bulk_size: int | str = 64
    memory_budget: int | str | None = None
    prefetch: int = 1
    optimizer: str = "adam"
    learning_rate: float = 0.005
    weight_decay: float = 0.0
    momentum: float = 0.9
    schedule: str = "constant"
    warmup_epochs: int = 0
    decay_every: int = 10
    decay_factor: float = 0.5
    clip_norm: float | None = None
    patience: int | None = None
    eval_every: int = 1
    evaluation: str = "full"
    test_sizes: tuple[int, ...] | None = None
    evaluation_memory: int | str = "1GiB"
    random_seed: int = 0
    backend: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be trained with; the loader checks the sizes it gets."""
        for name in ("epochs", "eval_every", "decay_every"):
            require_int(name, getattr(self, name), minimum=1)
        require_int("warmup_epochs", self.warmup_epochs, minimum=0)
        if self.patience is not None:
            require_int("patience", self.patience, minimum=1)
        require_int("random_seed", self.random_seed, minimum=0, maximum=2**64 - 1)
        require_choice("optimizer", self.optimizer, sorted(OPTIMIZERS))
        require_choice("schedule", self.schedule, sorted(SCHEDULES))
        require_choice("evaluation", self.evaluation, EVALUATIONS)
        require_bytes("evaluation_memory", self.evaluation_memory)
        self._check_numbers()
        self._check_sizes()

    def _check_numbers(self) -> None:
        require_number("learning_rate", self.learning_rate, lambda x: x > 0, "a positive number")
        require_number("weight_decay", self.weight_decay, lambda x: x >= 0, "a number of at least 0")
        require_number("momentum", self.momentum, lambda x: 0 <= x < 1, "a number in [0, 1)")
        require_number("decay_factor", self.decay_factor, lambda x: 0 < x < 1, "a number between 0 and 1")
        if self.clip_norm is not None:
            require_number("clip_norm", self.clip_norm, lambda x: x > 0, "a positive number")

    def _check_sizes(self) -> None:
        """Of the loader, and of the sampler in evaluation."""
        require_int("batch_size", self.batch_size, minimum=1)
        require_int("prefetch", self.prefetch, minimum=0)
        if not (isinstance(self.bulk_size, str) and self.bulk_size == "auto"):
            require_int("bulk_size", self.bulk_size, minimum=1)
        if self.memory_budget is not None:
            require_bytes("memory_budget", self.memory_budget)
        if self.test_sizes is not None:
            require_sizes("test_sizes", self.test_sizes, whole_rows=True)
        if self.backend is not None:
            require_type("backend", self.backend, str, "the name of a backend, or None")

    def decisive(self) -> dict[str, Any]:
        """Return the settings that decide the result, as plain values; the others change its speed alone."""
        known = asdict(self)
        known["test_sizes"] = None if self.test_sizes is None else list(self.test_sizes)
        return {name: value for name, value in known.items() if name not in _WITHOUT_EFFECT}
