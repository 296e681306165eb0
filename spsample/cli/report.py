"""Texts of `spsample train`: the settings before a run, its progress, and tables of its results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from spsample.cli.progress import Display, elapsed, print_progress
from spsample.cli.screen import print_line, print_sentence, print_table
from spsample.common.threads import get_num_threads
from spsample.common.units import count, format_bytes
from spsample.features import CacheCounts
from spsample.settings import METRIC_NAMES
from spsample.timeline import stage_times, work_seconds
from spsample.training import Callback

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spsample.data import Dataset
    from spsample.training import EpochRecord, Trainer, TrainResult
    from spsample.training.results import RankSummary


def print_plan(trainer: Trainer, settings: dict[str, Any], ranks: str | None = None) -> None:
    """Print what is about to be trained on what, and the settings as options that would give them again.

    ``ranks`` describes the placement on several ranks.
    """
    graph, loader = trainer.graph, trainer.loader
    threads = f", {count(get_num_threads(), 'thread', 'threads')}" if settings["backend"] == "cpu" else ""
    seeds = min(loader.batch_size, len(loader.seeds))
    batches = loader.num_batches * (trainer.comm.size // loader.comm.size)  # ranks with parts have a loader each
    print_line(
        f"{trainer.dataset.name}: {graph.num_nodes:,} vertices, {graph.num_edges:,} edges; "
        f"{count(batches, 'minibatch', 'minibatches')} of {seeds:,} seeds per epoch, "
        f"sampled up to {loader.bulk_size:,} at once (backend {settings['backend']}{threads})"
    )
    if ranks is not None:
        print_line(f"ranks: {ranks}; {count(len(loader), 'step', 'steps')} per epoch")
    print_line(f"sampler: {trainer.sampler}")
    words = []
    for name, value in settings.items():
        if name == "dataset" or value is None or value is False:
            continue
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        words.append(f"--{name.replace('_', '-')}" + ("" if value is True else f" {text}"))
    print_line(f"settings: {' '.join(words)}")


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
        self._begin = time.monotonic()
        self._task = self.bars.add_task("", total=epochs)

    def on_start(self, trainer: Trainer) -> None:
        """Print where a resumed run goes on."""
        progress = trainer.progress
        self._trainer, self._begin = trainer, time.monotonic()
        self.bars.update(self._task, completed=progress.epoch)
        if not self._quiet:
            for note in trainer.notes:
                print_progress(note)
        if progress.step == 0 or self._quiet:
            return
        trained, steps = progress.next_batch // trainer.loader.batches_per_step, len(trainer.loader)
        number = f"epoch {progress.epoch + 1}"
        where = f"{number}, step {trained + 1} of {steps}" if trained < steps else f"the end of {number}"
        print_progress(f"all {progress.epoch} epochs are trained" if trainer.is_over else f"goes on at {where}")

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
            print_progress(f"epoch {record.epoch + 1} of {self._epochs}: loss {record.loss:.4f}, {val}{took}")
        self._begin = time.monotonic()

    def status(self) -> str:
        """Return the progress of the epoch under way, in words."""
        if self._trainer is None:
            return ""
        progress, steps = self._trainer.progress, len(self._trainer.loader)
        if progress.epoch >= self._epochs:
            return "evaluation of the result"
        done = f"step {progress.next_batch // self._trainer.loader.batches_per_step} of {steps}"
        return f"epoch {progress.epoch + 1} of {self._epochs}: {done}, loss {self._loss:.4f}"


# --------------------------------------------------------------------------------------------------- after the training


def print_results(results: Sequence[TrainResult]) -> None:
    """Print the figures of merit of one run, or of those on several splits and seeds."""
    first, metric = results[0], METRIC_NAMES[results[0].metric]
    if len(results) == 1:
        print_sentence(
            f"test {metric} {percent(first.test)} (validation {percent(first.val)}), "
            f"from epoch {first.best_epoch + 1} of {len(first.history)}"
        )
    else:
        scores = 100 * np.array([[result.test, result.val] for result in results])
        print_sentence(f"{metric} of {len(results)} runs, in %: mean and deviation, then each run")
        rows = [["mean", *scores.mean(0), ""], ["+-", *scores.std(0, ddof=1), ""]]
        for number, (result, own) in enumerate(zip(results, scores, strict=True)):
            rows.append([str(number), *own, f"{result.best_epoch + 1}/{len(result.history)}"])
        print_table(["run", "test", "validation", "best epoch"], rows)
    if all(result.sampled for result in results):
        means = {part: float(np.mean([(result.sampled or {})[part] for result in results])) for part in ("test", "val")}
        figures = f"test {percent(means['test'])}, validation {percent(means['val'])}"
        print_sentence(f"with sampled neighbourhoods: {figures}")
    for note in dict.fromkeys(note for result in results for note in result.notes):
        print_sentence(note)
    if first.bayes_rate is not None:
        print_sentence(f"Bayes rate {percent(first.bayes_rate)}: no model does better")


def percent(value: float) -> str:
    """A share of 1, as people read it."""
    return f"{100 * value:.2f} %"


def print_phases(results: Sequence[TrainResult]) -> None:
    """Print the seconds per phase, summed over the runs, and what came from caches."""
    from spsample.training.results import total_seconds

    seconds = total_seconds(results)
    rows = {phase: (value,) for phase, value in seconds.items()}
    _print_seconds("time per phase, the longest first", ["phase", "seconds"], rows, seconds)
    _print_cached([result.cache for result in results if result.cache is not None])


def print_ranks(summary: RankSummary) -> None:
    """Print seconds and traffic by phase: of the rank that has most, and of a rank in the mean."""
    title = f"time per phase on {summary.ranks} ranks ({summary.backend}), the longest first"
    rows = {phase: (seconds["mean"], seconds["max"]) for phase, seconds in summary.seconds.items()}
    means = {phase: mean for phase, (mean, _) in rows.items()}
    _print_seconds(title, ["phase", "mean, s", "most, s"], rows, means)
    _print_cached(summary.cache)
    if summary.traffic:
        _print_traffic(summary)


def _print_seconds(
    title: str, columns: list[str], rows: Mapping[str, tuple[float, ...]], seconds: Mapping[str, float]
) -> None:
    """Print the seconds of all phases, the longest first; then how long each stage that has threads waited."""
    work = work_seconds(seconds)
    print_line("")
    print_sentence(title)
    longest = sorted(work, key=lambda phase: -work[phase])
    blank = [""] * (len(columns) - 2)
    print_table(columns, [["total", sum(work.values()), *blank], *([phase, *rows[phase]] for phase in longest)])
    stages = stage_times(seconds)
    if not stages:
        return
    if len(stages) > 1:
        beside = "Sampling, features and copies" if "copies" in seconds else "Sampling and features"
        print_sentence(f"{beside} run beside the training, which waited {seconds['waiting']:,.2f} s.")
        print_line("")
    kinds = [kind for kind in ("input", "room", "ranks") if any(kind in stage.waited for stage in stages)]
    print_sentence("waiting per stage: for input (starved), for room (ahead of the next stage), for other ranks")
    waits = ([stage.stage, stage.worked, *(stage.waited.get(kind, "") for kind in kinds)] for stage in stages)
    print_table(["stage", "worked, s", *(f"for {kind}, s" for kind in kinds)], waits)


def _print_cached(counts: Sequence[Mapping[str, float]]) -> None:
    """Print the sources of feature rows, in all runs or on all ranks; nothing without a cache."""
    if not counts:
        return
    sums: dict[str, Any] = {name: sum(count[name] for count in counts) for name in counts[0]}
    total = CacheCounts(**sums)
    if not total.peer_hits:
        print_sentence(
            f"features: {percent(total.hit_share)} of {total.rows:,.0f} rows cached; "
            f"{format_bytes(total.hit_bytes)} from the cache, {format_bytes(total.miss_bytes)} from their source"
        )
        return
    rows = [
        ["here", 100 * total.hit_share, total.hit_bytes],
        ["other ranks' copies", 100 * total.peer_share, total.peer_bytes],
        ["their source", 100 * total.misses / total.rows, total.miss_bytes],
    ]
    print_sentence(f"{total.rows:,.0f} rows of features, at {total.cost / total.rows:.3f} of the cost of their source")
    print_table(["rows from", "%", "bytes"], rows)


def _print_traffic(summary: RankSummary) -> None:
    """Bytes sent, in the mean and at most, the most received, and messages: received are as many in the mean."""
    sent = {phase: counts for phase, counts in summary.traffic.items() if counts["messages_sent"]["max"]}
    rows = []
    for phase, counts in ({"total": summary.total, **sent} if summary.total else sent).items():
        volumes = counts["bytes_sent"]["mean"], counts["bytes_sent"]["max"], counts["bytes_received"]["max"]
        rows.append([phase, *volumes, round(counts["messages_sent"]["max"])])
    print_sentence("Traffic of a rank, in the mean and of the rank with most.")
    columns = ["phase", "mean, bytes", "most sent, bytes", "most received, bytes", "most messages"]
    print_table(columns, rows)
