"""What happens beside the steps of a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spsample.training.results import EpochRecord, TrainResult
    from spsample.training.trainer import Trainer

__all__ = ["Callback"]


class Callback:
    """Base of what a `Trainer` calls as it goes; every method may be left out.

    A callback with a state of its own returns it from `state_dict`, as plain values, and it is kept in checkpoints.
    Callbacks are called in the order given, so one that writes checkpoints comes last.

    Examples
    --------
    >>> class Losses(Callback):
    ...     def __init__(self):
    ...         self.values = []
    ...
    ...     def on_step(self, trainer, loss):
    ...         self.values.append(loss)
    """

    def on_start(self, trainer: Trainer) -> None:
        """Before the first step, or the first one after a resumption."""

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """After an optimisation step; ``loss`` is the mean over the batch's seeds before it."""

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """After an epoch, its evaluation and the change of the learning rate."""

    def on_end(self, trainer: Trainer, result: TrainResult) -> None:
        """After the result was computed."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs to know."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
