"""Optimizers and learning-rate schedules by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import lr_scheduler

from spsample.errors import InputError
from spsample.settings.training import TrainConfig

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], tuple[str, ...]]] = {
    "adam": (torch.optim.Adam, ()),
    "adamw": (torch.optim.AdamW, ()),
    "sgd": (torch.optim.SGD, ("momentum",)),
}
"""torch's optimizers, and the settings that each has of its own."""


def make_optimizer(parameters: Iterable[torch.nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Return the optimizer that ``config.optimizer`` names."""
    kind, names = OPTIMIZERS[config.optimizer]
    options: dict[str, Any] = {name: getattr(config, name) for name in names}
    options |= {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    return kind(list(parameters), **options)


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer, TrainConfig], Any]] = {
    "constant": lambda optimizer, _: lr_scheduler.ConstantLR(optimizer, factor=1.0, total_iters=0),
    "cosine": lambda optimizer, config: lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=max(1, config.epochs - config.warmup_epochs)
    ),
    "step": lambda optimizer, config: lr_scheduler.StepLR(
        optimizer, step_size=config.decay_every, gamma=config.decay_factor
    ),
    "plateau": lambda optimizer, config: lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=config.decay_factor, patience=config.decay_every - 1, threshold=0.0
    ),
}

_ENDING = ("cosine",)
"""Schedules that end with the last epoch, and so depend on how many there are."""


def require_epochs(epochs: int, planned: int, schedule: str) -> None:
    """Refuse another number of epochs than was planned, where that would have been another run from the start.

    Raises
    ------
    InputError

    Examples
    --------
    >>> require_epochs(50, 30, "step")
    """
    if epochs != planned and schedule in _ENDING:
        hint = "Its learning rates depend on the number of epochs: begin a new run for more of them."
        given = f"{epochs} for a run of {planned} with schedule {schedule!r}"
        raise InputError(argument="epochs", given=given, expected=str(planned), hint=hint)


class Schedule:
    """The learning rate, set anew after each epoch: a linear rise, then one of torch's schedules.

    Parameters
    ----------
    optimizer
        Whose learning rate is set.
    config
        ``schedule``, ``warmup_epochs``, ``decay_every``, ``decay_factor`` and ``epochs``.

    Examples
    --------
    >>> from spsample.training import TrainConfig
    >>> config = TrainConfig(epochs=6, schedule="step", warmup_epochs=2, decay_every=2, learning_rate=0.3)
    >>> optimizer = make_optimizer([torch.nn.Parameter(torch.zeros(1))], config)
    >>> schedule, rates = Schedule(optimizer, config), []
    >>> for epoch in range(config.epochs):
    ...     rates.append(round(schedule.learning_rate, 3))
    ...     optimizer.step()
    ...     schedule.epoch_over(None)
    >>> rates
    [0.1, 0.2, 0.3, 0.3, 0.15, 0.15]
    """

    def __init__(self, optimizer: torch.optim.Optimizer, config: TrainConfig) -> None:
        self._optimizer = optimizer
        self._epoch = 0
        self._warmup_epochs = config.warmup_epochs
        self._main = SCHEDULES[config.schedule](optimizer, config)
        self._warmup = lr_scheduler.LinearLR(
            optimizer, start_factor=1 / (config.warmup_epochs + 1), total_iters=config.warmup_epochs
        )

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return float(self._optimizer.param_groups[0]["lr"])

    def epoch_over(self, val: float | None) -> None:
        """Go on to the next epoch; ``val`` is the metric on the validation vertices where it was evaluated."""
        self._epoch += 1
        with warnings.catch_warnings():
            # a run resumed at the end of an epoch takes no step before this in its process
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
            if self._epoch <= self._warmup_epochs:
                self._warmup.step()
            elif not isinstance(self._main, lr_scheduler.ReduceLROnPlateau):
                self._main.step()
            elif val is not None:
                self._main.step(val)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as plain values."""
        return {"epoch": self._epoch, "warmup": self._warmup.state_dict(), "main": self._main.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._epoch = state["epoch"]
        self._warmup.load_state_dict(state["warmup"])
        self._main.load_state_dict(state["main"])
