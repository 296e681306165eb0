"""Progress of a training, epoch by epoch."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from spsample.cli.progress import Display, elapsed, print_progress
from spsample.cli.report import percent
from spsample.data import Dataset
from spsample.features import CacheCounts
from spsample.settings import METRIC_NAMES
from spsample.training import Callback, EpochRecord, Trainer


class EpochProgress(Display, Callback):
    """Progress of a training, on standard error: a bar on a terminal, elsewhere a line per epoch and per minute.

    Parameters
    ----------
    dataset
        The data set.
    epochs
        Passes over it.
    quiet
        Print nothing.
    """

    def __init__(self, dataset: Dataset, epochs: int, *, quiet: bool) -> None:
        columns = TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}")
        super().__init__(*columns, quiet=quiet)
        self._quiet = quiet
        self._metric = METRIC_NAMES.get(dataset.metric, dataset.metric)
        self._epochs = epochs
        self._val = "-"
        self._trainer: Trainer | None = None
        self._loss = 0.0
        self._counts = CacheCounts(0, 0, 0, 0)
        self._begin = time.monotonic()
        self._task = self.bars.add_task("", total=epochs)

    def on_start(self, trainer: Trainer) -> None:
        """Print where a resumed run goes on."""
        progress = trainer.progress
        self._trainer, self._begin = trainer, time.monotonic()
        self._counts = trainer.cache_counts or self._counts
        self.bars.update(self._task, completed=progress.epoch)
        if not self._quiet:
            for note in trainer.notes:
                print_progress(note)
        if progress.step == 0 or self._quiet:
            return
        trained, steps = progress.next_batch // trainer.loader.batches_per_step, len(trainer.loader)
        if trainer.is_over:
            print_progress(f"all {progress.epoch} epochs are trained")
        elif trained >= steps:
            print_progress(f"goes on at the end of epoch {progress.epoch + 1}")
        else:
            print_progress(f"goes on at epoch {progress.epoch + 1}, step {trained + 1} of {steps}")

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """Take note of the loss."""
        self._loss = loss

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Take note of an epoch that is over."""
        if record.val is not None:
            self._val = percent(record.val)
        shown = f"loss {record.loss:.4f}  validation {self._metric} {self._val}"
        self.bars.update(self._task, advance=1, description=shown)
        if self.prints_lines:
            val = "" if record.val is None else f"validation {self._metric} {percent(record.val)}, "
            took = elapsed(time.monotonic() - self._begin)
            cached = self._cached(trainer)
            print_progress(f"epoch {record.epoch + 1} of {self._epochs}: loss {record.loss:.4f}, {val}{cached}{took}")
        self._begin = time.monotonic()

    def _cached(self, trainer: Trainer) -> str:
        """The share of this epoch's feature rows that were cached; empty where none are."""
        counts, before = trainer.cache_counts, self._counts
        if counts is None:
            return ""
        self._counts = counts
        hits, rows = counts.hits - before.hits, sum(counts[:2]) - sum(before[:2])
        return f"{percent(hits / max(rows, 1))} of rows cached, "

    def status(self) -> str:
        """Return the progress of the epoch under way, in words."""
        if self._trainer is None:
            return ""
        progress, steps = self._trainer.progress, len(self._trainer.loader)
        if progress.epoch >= self._epochs:
            return "evaluation of the result"
        done = f"step {progress.next_batch // self._trainer.loader.batches_per_step} of {steps}"
        return f"epoch {progress.epoch + 1} of {self._epochs}: {done}, loss {self._loss:.4f}"
