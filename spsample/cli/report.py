"""What the commands show: progress and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from spsample.data import Dataset
    from spsample.training import EpochRecord, TrainResult

__all__ = ["EpochProgress", "print_results"]

_METRIC_NAMES = {"accuracy": "accuracy", "roc_auc": "ROC AUC"}


class EpochProgress:
    """A progress bar over the epochs, on standard error; silent where that is no terminal, or if told so."""

    def __init__(self, dataset: Dataset, epochs: int, *, quiet: bool) -> None:
        console = Console(stderr=True)
        self._metric = _METRIC_NAMES.get(dataset.metric, dataset.metric)
        self._val = "-"
        self._progress = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        if not quiet and console.is_terminal:
            console.print(repr(dataset), highlight=False)
        self._task = self._progress.add_task("", total=epochs)

    def __enter__(self) -> EpochProgress:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()

    def update(self, record: EpochRecord) -> None:
        """Take note of an epoch that is over."""
        if record.val is not None:
            self._val = _percent(record.val)
        text = f"loss {record.loss:.4f}  validation {self._metric} {self._val}"
        self._progress.update(self._task, advance=1, description=text)


def print_results(results: Sequence[TrainResult]) -> None:
    """Print the figures of merit and the time per phase of one run, or of the runs on several splits."""
    console = Console()
    console.print(f"{results[0].dataset}, {results[0].sampler}", highlight=False)
    console.print(_summary(results))
    console.print(_phases(results))


def _summary(results: Sequence[TrainResult]) -> Table:
    first = results[0]
    table = Table(title="figures of merit")
    if len(results) > 1:
        table.add_column("split", justify="right")
    for name in ("validation", "test"):
        table.add_column(f"{name} {_METRIC_NAMES[first.metric]}", justify="right")
    table.add_column("best epoch", justify="right")
    for number, result in enumerate(results):
        label = [str(number)] if len(results) > 1 else []
        epoch = f"{result.best_epoch + 1} of {len(result.history)}"
        table.add_row(*label, _percent(result.val), _percent(result.test), epoch)
    if len(results) > 1:
        table.add_section()
        table.add_row("mean", *(_mean([getattr(r, part) for r in results]) for part in ("val", "test")), "")
    if first.bayes_rate is not None:
        table.caption = f"Bayes rate {_percent(first.bayes_rate)}"
    return table


def _phases(results: Sequence[TrainResult]) -> Table:
    """Seconds per phase, summed over the runs."""
    totals = {phase: sum(r.seconds[phase] for r in results) for phase in results[0].seconds}
    whole = sum(totals.values())
    table = Table(title="time per phase")
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    for phase, seconds in totals.items():
        table.add_row(phase, f"{seconds:.2f}", _percent(seconds / whole if whole else 0.0))
    table.add_section()
    table.add_row("total", f"{whole:.2f}", "")
    return table


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _mean(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.2f} +- {100 * np.std(values):.2f} %"
