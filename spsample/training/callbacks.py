"""Callbacks of a training run: lines of JSON, TensorBoard's files, checkpoints, and one's own."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spsample.comm import collective
from spsample.common.checks import require_int, require_number, require_path
from spsample.errors import require_module
from spsample.store.folder import only_recorded
from spsample.training.checkpoint import write_checkpoint

if TYPE_CHECKING:
    from spsample.training.results import EpochRecord, TrainResult
    from spsample.training.trainer import Trainer


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


def call_all(trainer: Trainer, event: str, *arguments: Any) -> None:
    """Call that method of all callbacks of a trainer, in their order; collective."""
    with collective(trainer.comm, call="callbacks of training"):
        for callback in trainer.callbacks:
            getattr(callback, event)(trainer, *arguments)


def by_name(callbacks: Iterable[Callback]) -> dict[str, Callback]:
    """Return callbacks by the names of their types; of several of one type, those after the first are numbered."""
    counts: Counter[str] = Counter()
    named = {}
    for callback in callbacks:
        name = type(callback).__name__
        counts[name] += 1
        named[name if counts[name] == 1 else f"{name} {counts[name]}"] = callback
    return named


class Journal(Callback):
    """Write one line of JSON per epoch and per ``every_batches`` steps, each as it happens.

    A line of steps has ``kind`` "steps", ``step`` (steps so far), ``epoch``, ``loss`` (mean over the steps since the
    last such line), ``learning_rate``; one of an epoch has ``kind`` "epoch", ``step``, ``epoch``, ``loss`` (mean over
    its seeds), ``val`` or null, ``learning_rate`` and ``seconds`` per phase so far; where features are cached also
    ``cache``: ``hits``, ``misses``, ``hit_bytes`` and ``miss_bytes`` so far. A resumed run cuts the file back to where
    its checkpoint was taken, so that no step is in it twice. A line that cannot be written is lost, with a warning, and
    the run goes on.

    Parameters
    ----------
    path
        The file.
    every_batches
        Steps per line; 0 for none.
    """

    def __init__(self, path: str | Path, *, every_batches: int = 0) -> None:
        self.path = require_path("path", path)
        self._every = require_int("every_batches", every_batches, minimum=0)
        self._losses: list[float] = []
        self._size = 0

    def on_start(self, trainer: Trainer) -> None:
        """See `Callback`."""
        with only_recorded(self.path), self.path.open("ab") as file:
            file.truncate(min(self._size, file.tell()))

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """See `Callback`."""
        if not self._every:
            return
        self._losses.append(loss)
        progress = trainer.progress
        if progress.step % self._every == 0:
            mean = math.fsum(self._losses) / len(self._losses)
            self._losses = []
            place = {"kind": "steps", "step": progress.step, "epoch": progress.epoch}
            self._write({**place, "loss": mean, "learning_rate": trainer.schedule.learning_rate})

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """See `Callback`."""
        seconds = {phase: round(value, 6) for phase, value in trainer.seconds.items()}
        place = {"kind": "epoch", "step": trainer.progress.step}
        counts = trainer.cache_counts
        cache = {} if counts is None else {"cache": counts.as_dict()}
        self._write({**place, **vars(record), "seconds": seconds, **cache})

    def state_dict(self) -> dict[str, Any]:
        """See `Callback`."""
        return {"size": self._size, "losses": list(self._losses)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Callback`."""
        self._size, self._losses = state.get("size", 0), list(state.get("losses", []))

    def _write(self, line: dict[str, Any]) -> None:
        with only_recorded(self.path), self.path.open("ab", buffering=0) as file:
            file.truncate(min(self._size, file.tell()))
            whole = json.dumps(line).encode() + b"\n"
            written = 0
            try:
                while written < len(whole):
                    written += file.write(whole[written:])
            except OSError:
                file.truncate(self._size)  # no line is half there
                raise
            self._size += written


def require_tensorboard() -> Any:
    """The module that writes TensorBoard's files.

    Raises
    ------
    MissingDependencyError
        If tensorboard is not installed.
    """
    return require_module("torch.utils.tensorboard", needed_for="writing for TensorBoard", package="tensorboard")


class TensorBoard(Callback):
    """Write loss, learning rate and validation metric for TensorBoard, by epoch.

    Parameters
    ----------
    folder
        Of the event files.

    Raises
    ------
    MissingDependencyError
        If tensorboard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = require_path("folder", folder)
        self._writer: Any = require_tensorboard().SummaryWriter(str(self.folder))

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """See `Callback`."""
        values = {"loss": record.loss, "learning_rate": record.learning_rate, "val": record.val}
        with only_recorded(self.folder):
            for name, value in values.items():
                if value is not None:
                    self._writer.add_scalar(name, value, record.epoch)
            self._writer.flush()


class Checkpointer(Callback):
    """Write the trainer's state at intervals of minutes, batches or epochs, whichever comes first, and at the end.

    Parameters
    ----------
    path
        The file, replaced each time.
    every_minutes, every_batches, every_epochs
        0 or None for never.

    Raises
    ------
    InputError
        If a number is negative.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        every_minutes: float | None = None,
        every_batches: int | None = None,
        every_epochs: int | None = 1,
    ) -> None:
        self.path = require_path("path", path)
        minutes, batches, epochs = (0 if n is None else n for n in (every_minutes, every_batches, every_epochs))
        self._minutes = require_number("every_minutes", minutes, lambda x: x >= 0, "a number of at least 0")
        self._batches = require_int("every_batches", batches, minimum=0)
        self._epochs = require_int("every_epochs", epochs, minimum=0)
        self._written = time.monotonic()

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """See `Callback`."""
        every = bool(self._batches) and trainer.progress.step % self._batches == 0
        if every or (self._minutes and time.monotonic() - self._written >= 60 * self._minutes):
            self.write(trainer)

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """See `Callback`."""
        if self._epochs and trainer.progress.epoch % self._epochs == 0:
            self.write(trainer)

    def on_end(self, trainer: Trainer, result: TrainResult) -> None:
        """See `Callback`."""
        self.write(trainer)

    def write(self, trainer: Trainer) -> None:
        """Write a checkpoint now."""
        write_checkpoint(self.path, trainer.state_dict())
        self._written = time.monotonic()
