"""What the commands show: progress and tables."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spsample.backends import get_backend
from spsample.cli.progress import Heartbeat, elapsed, print_progress
from spsample.cli.screen import (
    bytes_column,
    console,
    has_bars,
    print_line,
    print_sentence,
    print_table,
    table,
    unit_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from spsample.data import Dataset
    from spsample.training import EpochRecord, Preset, Trainer, TrainResult
    from spsample.training.rank_summary import RankSummary

__all__ = ["EpochProgress", "describe_settings", "print_phases", "print_plan", "print_ranks", "print_results"]

_METRIC_NAMES = {
    "accuracy": "accuracy",
    "average_precision": "average precision",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "roc_auc": "ROC AUC",
}


class EpochProgress:
    """How far a training is, on standard error: a bar on a terminal, elsewhere a line per epoch and per minute."""

    def __init__(self, dataset: Dataset, epochs: int, *, quiet: bool) -> None:
        where = console(stderr=True)
        self._metric = _METRIC_NAMES.get(dataset.metric, dataset.metric)
        self._epochs = epochs
        self._val = "-"
        self._quiet = quiet
        self._trainer: Trainer | None = None
        self._loss = 0.0
        self._begin = time.monotonic()
        self._bar = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=where,
            disable=quiet or not has_bars(where),
        )
        self._task = self._bar.add_task("", total=epochs)
        self._speaks = not quiet and self._bar.disable
        self._lines: AbstractContextManager[object] = Heartbeat(self.told) if self._speaks else nullcontext()

    def __enter__(self) -> EpochProgress:
        """Show the bar."""
        self._bar.start()
        self._lines.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self._lines.__exit__(kind, error, trace)
        self._bar.stop()

    def on_start(self, trainer: Trainer) -> None:
        """Say where a resumed run goes on."""
        progress = trainer.progress
        self._trainer, self._begin = trainer, time.monotonic()
        self._bar.update(self._task, completed=progress.epoch)
        if progress.step == 0 or self._quiet:
            return
        step = f"step {progress.next_batch // trainer.comm.size + 1} of {len(trainer.loader)}"
        over = f"all {progress.epoch} epochs are trained"
        print_progress(over if trainer.is_over else f"goes on at epoch {progress.epoch + 1}, {step}")

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """See `spsample.training.Callback`, which is not imported here: ``--help`` needs no torch."""
        self._loss = loss

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
        self._bar.update(
            self._task, advance=1, description=f"loss {record.loss:.4f}  validation {self._metric} {self._val}"
        )
        if self._speaks:
            val = "" if record.val is None else f"validation {self._metric} {_percent(record.val)}, "
            took = elapsed(time.monotonic() - self._begin)
            print_progress(f"epoch {record.epoch + 1} of {self._epochs}: loss {record.loss:.4f}, {val}{took}")
        self._begin = time.monotonic()

    def told(self) -> str:
        """How far the epoch under way is, in words."""
        if self._trainer is None:
            return ""
        progress, steps = self._trainer.progress, len(self._trainer.loader)
        if progress.epoch >= self._epochs:
            return "evaluation of the result"
        done = f"step {progress.next_batch // self._trainer.comm.size} of {steps}"
        return f"epoch {progress.epoch + 1} of {self._epochs}: {done}, loss {self._loss:.4f}"


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
    for line in lines:
        print_line(line)


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
    """Print the figures of merit of one run, or of those on several splits and seeds."""
    if len(results) == 1:
        print_sentence(_figures(results[0]))
    else:
        _print_runs(results)
    for remark in _remarks(results):
        print_sentence(remark)


def print_phases(results: Sequence[TrainResult]) -> None:
    """Print the seconds per phase, summed over the runs: the longest first."""
    totals = {phase: sum(r.seconds[phase] for r in results) for phase in results[0].seconds}
    whole = sum(totals.values())
    print_line("")
    print_sentence("time per phase, the longest first")
    shown = table("phase", "seconds", "share, %")
    shown.add_row("total", f"{whole:,.2f}", "")
    for phase, seconds in sorted(totals.items(), key=lambda one: -one[1]):
        shown.add_row(phase, f"{seconds:,.2f}", f"{100 * seconds / whole if whole else 0.0:.2f}")
    print_table(shown)
    _explain_phases(totals)


def print_ranks(summary: RankSummary) -> None:
    """Print seconds and traffic by phase: of the rank that has most, and of a rank in the mean."""
    _print_rank_seconds(summary)
    if summary.traffic:
        _print_rank_traffic(summary)


def _print_rank_seconds(summary: RankSummary) -> None:
    print_line("")
    print_sentence(f"time per phase on {summary.ranks} ranks ({summary.backend}), the longest first")
    shown = table("phase", "mean, s", "most, s")
    means = {phase: seconds["mean"] for phase, seconds in summary.seconds.items()}
    shown.add_row("total", f"{sum(means.values()):,.2f}", "")
    for phase in sorted(means, key=lambda phase: -means[phase]):
        shown.add_row(phase, *(f"{summary.seconds[phase][which]:,.2f}" for which in ("mean", "max")))
    print_table(shown)
    _explain_phases(means)


def _explain_phases(seconds: Mapping[str, float]) -> None:
    """Say which of the phases run beside the others."""
    if "waiting" in seconds:
        print_sentence(f"Sampling and features run beside the training, which waited {seconds['waiting']:,.2f} s.")
        print_line("")


def _print_rank_traffic(summary: RankSummary) -> None:
    """Bytes sent, in the mean and at most, the most received, and messages: received are as many in the mean."""
    sent = {phase: counts for phase, counts in summary.traffic.items() if counts["messages_sent"]["max"]}
    rows = {"total": summary.total, **sent} if summary.total else sent
    unit = unit_for(counts[way]["max"] for counts in rows.values() for way in ("bytes_sent", "bytes_received"))
    print_sentence(f"Traffic of a rank, in {unit}, in the mean and of the rank with most{_largest_share(sent)}.")
    shown = table("phase", "mean", "most sent", "most received", "most messages")
    for phase, counts in rows.items():
        volumes = counts["bytes_sent"]["mean"], counts["bytes_sent"]["max"], counts["bytes_received"]["max"]
        shown.add_row(phase, *bytes_column(volumes, unit), f"{counts['messages_sent']['max']:,.0f}")
    print_table(shown)


def _largest_share(traffic: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The phase that sends most, in a clause."""
    means = {phase: counts["bytes_sent"]["mean"] for phase, counts in traffic.items()}
    if not any(means.values()):
        return ""
    phase = max(means, key=lambda one: means[one])
    return f"; {100 * means[phase] / sum(means.values()):.0f} % is for {phase}"


def _figures(result: TrainResult) -> str:
    """Of one run, in a sentence."""
    metric = _METRIC_NAMES[result.metric]
    return (
        f"test {metric} {_percent(result.test)} (validation {_percent(result.val)}), "
        f"from epoch {result.best_epoch + 1} of {len(result.history)}"
    )


def _print_runs(results: Sequence[TrainResult]) -> None:
    """Of several: mean and deviation first."""
    metric = _METRIC_NAMES[results[0].metric]
    print_sentence(f"{metric} of {len(results)} runs, in %: mean and deviation, then each run")
    shown = table("run", "test", "+-", "validation", "+-", "best epoch")
    scores = [np.array([100 * getattr(result, part) for result in results]) for part in ("test", "val")]
    shown.add_row("mean", *(f"{number:.2f}" for run in scores for number in (run.mean(), run.std(ddof=1))), "")
    for number, result in enumerate(results):
        epoch = f"{result.best_epoch + 1}/{len(result.history)}"
        shown.add_row(str(number), f"{100 * result.test:.2f}", "", f"{100 * result.val:.2f}", "", epoch)
    print_table(shown)


def _remarks(results: Sequence[TrainResult]) -> Iterator[str]:
    """What there is to say beside the figures of merit."""
    if all(result.sampled for result in results):
        parts = {"test": "test", "validation": "val"}
        figures = [f"{word} {_mean([(r.sampled or {})[part] for r in results])}" for word, part in parts.items()]
        yield "with sampled neighbourhoods: " + ", ".join(figures)
    if results[0].bayes_rate is not None:
        yield f"Bayes rate {_percent(results[0].bayes_rate)}: no model does better"


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _mean(values: Sequence[float]) -> str:
    spread = f" +- {100 * np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.2f}{spread} %"
