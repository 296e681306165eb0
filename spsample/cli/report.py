"""What the commands show: progress and tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from spsample.backends import get_backend
from spsample.sparse.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from spsample.data import Dataset
    from spsample.training import EpochRecord, Preset, Trainer, TrainResult
    from spsample.training.rank_summary import RankSummary

__all__ = ["EpochProgress", "describe_settings", "print_plan", "print_ranks", "print_results"]

_METRIC_NAMES = {
    "accuracy": "accuracy",
    "average_precision": "average precision",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "roc_auc": "ROC AUC",
}


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

    def on_start(self, trainer: Trainer) -> None:
        """Show how far a resumed run is."""
        self._progress.update(self._task, completed=trainer.progress.epoch)

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """See `spsample.training.Callback`, which is not imported here: ``--help`` needs no torch."""

    def on_end(self, trainer: Trainer, result: TrainResult) -> None:
        """See `on_step`."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: what is shown is no part of a run."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `state_dict`."""

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Take note of an epoch that is over."""
        if record.val is not None:
            self._val = _percent(record.val)
        text = f"loss {record.loss:.4f}  validation {self._metric} {self._val}"
        self._progress.update(self._task, advance=1, description=text)


def describe_settings(sampler: str, preset: Preset) -> dict[str, Any]:
    """Return what ``spsample train`` runs with, under the names of its options."""
    sizes = "fanouts" if sampler == "graphsage" else "layer_sizes"
    model, config = preset.model, preset.train
    return {
        "sampler": sampler,
        sizes: list(getattr(preset, sizes)),
        "batch_size": config.batch_size,
        "bulk_size": config.bulk_size,
        "memory_budget": config.memory_budget,
        "prefetch": config.prefetch,
        "backend": get_backend(config.backend).name,
        "model": model.architecture,
        "hidden": model.hidden,
        "dropout": model.dropout,
        "residual": model.residual,
        "layer_norm": model.layer_norm,
        "heads": model.heads,
        "epochs": config.epochs,
        "lr": config.learning_rate,
        "weight_decay": config.weight_decay,
        "optimizer": config.optimizer,
        "momentum": config.momentum,
        "schedule": config.schedule,
        "warmup_epochs": config.warmup_epochs,
        "decay_every": config.decay_every,
        "decay_factor": config.decay_factor,
        "clip_norm": config.clip_norm,
        "patience": config.patience,
        "eval_every": config.eval_every,
        "evaluation": config.evaluation,
        "test_sizes": None if config.test_sizes is None else list(config.test_sizes),
        "evaluation_memory": config.evaluation_memory,
        "scaling": preset.scaling,
        "random_seed": config.random_seed,
    }


def print_plan(trainer: Trainer, settings: dict[str, Any], ranks: str | None = None) -> None:
    """Print what is about to be trained on what, and the settings as options that would give them again.

    ``ranks`` says how the graph lies on several ranks.
    """
    graph, loader = trainer.graph, trainer.loader
    where = f"backend {settings['backend']}{_threads(settings['backend'])}"
    seeds = min(loader.batch_size, len(loader.seeds))
    lines = (
        f"{trainer.dataset.name}: {graph.num_nodes:,} vertices, {graph.num_edges:,} edges; "
        f"{_count(loader.num_batches, 'minibatch', 'minibatches')} of {seeds:,} seeds per epoch, "
        f"sampled up to {loader.bulk_size:,} at once ({where})",
        *([] if ranks is None else [f"ranks: {ranks}; {_count(len(loader), 'step', 'steps')} per epoch"]),
        f"sampler: {trainer.sampler}",
        "settings: " + " ".join(_typed(name, value) for name, value in settings.items() if _matters(name, value)),
    )
    console = Console()
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _threads(backend: str) -> str:
    if backend != "cpu":
        return ""
    count = import_module("spsample._core").get_num_threads()
    return f", {_count(count, 'thread', 'threads')}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _matters(name: str, value: Any) -> bool:
    """Whether a setting is an option to be typed."""
    return name != "dataset" and value is not None and value is not False


def _typed(name: str, value: Any) -> str:
    option = "--" + name.replace("_", "-")
    return option if value is True else f"{option} {_text(value)}"


def _text(value: Any) -> str:
    return ",".join(str(entry) for entry in value) if isinstance(value, list) else str(value)


def print_results(results: Sequence[TrainResult]) -> None:
    """Print the figures of merit and the time per phase of one run, or of the runs on several splits."""
    console = Console()
    console.print(_summary(results))
    console.print(_phases(results))


def print_ranks(summary: RankSummary) -> None:
    """Print seconds and traffic by phase, the largest and the mean over the ranks."""
    console = Console()
    console.print(_rank_seconds(summary))
    if summary.traffic:
        console.print(_rank_traffic(summary))


def _rank_seconds(summary: RankSummary) -> Table:
    table = Table(title=f"seconds per phase on {summary.ranks} ranks ({summary.backend})")
    table.add_column("phase")
    for name in ("max", "mean"):
        table.add_column(name, justify="right")
    for phase, seconds in summary.seconds.items():
        table.add_row(phase, f"{seconds['max']:.2f}", f"{seconds['mean']:.2f}")
    return table


def _rank_traffic(summary: RankSummary) -> Table:
    """Bytes both ways and messages sent: of the rank that has most, and of a rank in the mean."""
    table = Table(title=f"traffic of a rank on {summary.ranks} ranks ({summary.backend})")
    table.add_column("phase")
    for name in ("sent, max", "mean", "received, max", "mean", "messages, max", "mean"):
        table.add_column(name, justify="right")
    sent = {phase: counts for phase, counts in summary.traffic.items() if counts["messages_sent"]["max"]}
    for phase, counts in sent.items():
        volumes = [counts[way][name] for way in ("bytes_sent", "bytes_received") for name in ("max", "mean")]
        messages = counts["messages_sent"]
        cells = [*(format_bytes(round(volume)) for volume in volumes), *(f"{n:,.0f}" for n in messages.values())]
        table.add_row(phase, *cells)
    return table


def _summary(results: Sequence[TrainResult]) -> Table:
    first = results[0]
    table = Table(title="figures of merit")
    if len(results) > 1:
        table.add_column("run", justify="right")
    for name in ("validation", "test"):
        table.add_column(f"{name} {_METRIC_NAMES[first.metric]}", justify="right")
    table.add_column("best epoch", justify="right")
    for number, result in enumerate(results):
        label = [str(number)] if len(results) > 1 else []
        epoch = f"{result.best_epoch + 1} of {len(result.history)}"
        table.add_row(*label, _percent(result.val), _percent(result.test), epoch)
    if len(results) > 1:
        table.add_section()
        table.add_row(
            "mean +- deviation", *(_mean([getattr(r, part) for r in results]) for part in ("val", "test")), ""
        )
    table.caption = "; ".join(_remarks(results)) or None
    return table


def _remarks(results: Sequence[TrainResult]) -> Iterator[str]:
    """What there is to say beside the figures of merit."""
    if all(result.sampled for result in results):
        parts = {"validation": "val", "test": "test"}
        figures = [f"{word} {_mean([(r.sampled or {})[part] for r in results])}" for word, part in parts.items()]
        yield "with sampled neighbourhoods: " + ", ".join(figures)
    if results[0].bayes_rate is not None:
        yield f"Bayes rate {_percent(results[0].bayes_rate)}"


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
    spread = f" +- {100 * np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.2f}{spread} %"
