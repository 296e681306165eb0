"""Texts of `spsample train`: the settings before a run, tables of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.cli.screen import bytes_column, print_line, print_sentence, print_table, unit_for
from spsample.common.threads import get_num_threads
from spsample.common.units import count, format_bytes
from spsample.settings import METRIC_NAMES
from spsample.timeline import stage_times, work_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from spsample.training import Trainer, TrainResult
    from spsample.training.results import RankSummary


def print_plan(trainer: Trainer, settings: dict[str, Any], ranks: str | None = None) -> None:
    """Print what is about to be trained on what, and the settings as options that would give them again.

    ``ranks`` describes the placement on several ranks.
    """
    graph, loader = trainer.graph, trainer.loader
    where = f"backend {settings['backend']}{_threads(settings['backend'])}"
    seeds = min(loader.batch_size, len(loader.seeds))
    lines = (
        f"{trainer.dataset.name}: {graph.num_nodes:,} vertices, {graph.num_edges:,} edges; "
        f"{count(loader.num_batches, 'minibatch', 'minibatches')} of {seeds:,} seeds per epoch, "
        f"sampled up to {loader.bulk_size:,} at once ({where})",
        *([] if ranks is None else [f"ranks: {ranks}; {count(len(loader), 'step', 'steps')} per epoch"]),
        f"sampler: {trainer.sampler}",
        "settings: " + " ".join(_typed(name, value) for name, value in settings.items() if _matters(name, value)),
    )
    for line in lines:
        print_line(line)


def _threads(backend: str) -> str:
    if backend != "cpu":
        return ""
    return f", {count(get_num_threads(), 'thread', 'threads')}"


def _matters(name: str, value: Any) -> bool:
    """Return whether a setting is an option to be typed."""
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
    for note in _notes(results):
        print_sentence(note)


def print_phases(results: Sequence[TrainResult]) -> None:
    """Print the seconds per phase, summed over the runs: the longest first."""
    from spsample.training.results import total_seconds

    measured = total_seconds(results)
    totals = work_seconds(measured)
    whole = sum(totals.values())
    print_line("")
    print_sentence("time per phase, the longest first")
    rows = [["total", f"{whole:,.2f}", ""]]
    for phase, seconds in sorted(totals.items(), key=lambda item: -item[1]):
        rows.append([phase, f"{seconds:,.2f}", f"{100 * seconds / whole if whole else 0.0:.2f}"])
    print_table(["phase", "seconds", "share, %"], rows)
    _explain_phases(measured)
    for sentence in _cache_sentence([result.cache for result in results if result.cache is not None]):
        print_sentence(sentence)


def _cache_sentence(counts: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """Yield a sentence about the sources of feature rows, in all runs or on all ranks; nothing without a cache."""
    if not counts:
        return
    hits, misses, hit_bytes, miss_bytes = (
        sum(count[name] for count in counts) for name in ("hits", "misses", "hit_bytes", "miss_bytes")
    )
    share = percent(hits / max(hits + misses, 1))
    yield (
        f"features: {share} of {hits + misses:,.0f} rows cached; "
        f"{format_bytes(hit_bytes)} from the cache, {format_bytes(miss_bytes)} from their source"
    )


def print_ranks(summary: RankSummary) -> None:
    """Print seconds and traffic by phase: of the rank that has most, and of a rank in the mean."""
    _print_rank_seconds(summary)
    for sentence in _cache_sentence(summary.cache):
        print_sentence(sentence)
    if summary.traffic:
        _print_rank_traffic(summary)


def _print_rank_seconds(summary: RankSummary) -> None:
    print_line("")
    print_sentence(f"time per phase on {summary.ranks} ranks ({summary.backend}), the longest first")
    measured = {phase: seconds["mean"] for phase, seconds in summary.seconds.items()}
    means = work_seconds(measured)
    rows = [["total", f"{sum(means.values()):,.2f}", ""]]
    for phase in sorted(means, key=lambda phase: -means[phase]):
        rows.append([phase, *(f"{summary.seconds[phase][which]:,.2f}" for which in ("mean", "max"))])
    print_table(["phase", "mean, s", "most, s"], rows)
    _explain_phases(measured)


_WAITED_FOR = {"input": "for input, s", "room": "for room, s", "ranks": "for ranks, s"}
"""Headings of what a stage waits for: what the one before makes, a place in the queue after it, the other ranks."""


def _explain_phases(seconds: Mapping[str, float]) -> None:
    """Print which of the phases run beside the others, and how long each stage waited."""
    stages = stage_times(seconds)
    if not stages:
        return
    if len(stages) > 1:
        beside = "Sampling, features and copies" if "copies" in seconds else "Sampling and features"
        print_sentence(f"{beside} run beside the training, which waited {seconds['waiting']:,.2f} s.")
        print_line("")
    kinds = [kind for kind in _WAITED_FOR if any(kind in stage.waited for stage in stages)]
    print_sentence("waiting per stage: for input (starved), for room (ahead of the next stage), for other ranks")
    rows = []
    for stage in stages:
        waited = [f"{stage.waited[kind]:,.2f}" if kind in stage.waited else "" for kind in kinds]
        rows.append([stage.stage, f"{stage.worked:,.2f}", *waited])
    print_table(["stage", "worked, s", *(_WAITED_FOR[kind] for kind in kinds)], rows)


def _print_rank_traffic(summary: RankSummary) -> None:
    """Bytes sent, in the mean and at most, the most received, and messages: received are as many in the mean."""
    sent = {phase: counts for phase, counts in summary.traffic.items() if counts["messages_sent"]["max"]}
    rows = {"total": summary.total, **sent} if summary.total else sent
    unit = unit_for(counts[way]["max"] for counts in rows.values() for way in ("bytes_sent", "bytes_received"))
    print_sentence(f"Traffic of a rank, in {unit}, in the mean and of the rank with most{_largest_share(sent)}.")
    shown = []
    for phase, counts in rows.items():
        volumes = counts["bytes_sent"]["mean"], counts["bytes_sent"]["max"], counts["bytes_received"]["max"]
        shown.append([phase, *bytes_column(volumes, unit), f"{counts['messages_sent']['max']:,.0f}"])
    print_table(["phase", "mean", "most sent", "most received", "most messages"], shown)
    _explain_traffic(sent)


_MEANING = {
    "activations": "rows of hidden layers, which an evaluation with all neighbours fetches",
    "batch activations": "rows of hidden layers, of cooperative batches",
    "pieces": "what is sampled, to the ranks that compute with it",
    "rows": "sampled rows of the graph, from their owners",
    "status": "the headers of all exchanges: counts, and whether a rank has failed",
    "totals": "sums of rows, which draws need",
}
"""Contents of phases of communication whose names do not say it."""


def _explain_traffic(phases: Iterable[str]) -> None:
    """Print what the phases of a table send."""
    explained = [f"{phase}: {_MEANING[phase]}" for phase in sorted(phases) if phase in _MEANING]
    if any(phase.endswith(" requests") for phase in phases):
        explained.append("requests: ids that are asked for")
    if explained:
        print_sentence(f"{'; '.join(explained)}.")
        print_line("")


def _largest_share(traffic: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The phase that sends most, in a clause."""
    means = {phase: counts["bytes_sent"]["mean"] for phase, counts in traffic.items()}
    if not any(means.values()):
        return ""
    phase = max(means, key=lambda phase: means[phase])
    return f"; {100 * means[phase] / sum(means.values()):.0f} % is for {phase}"


def _figures(result: TrainResult) -> str:
    """Figures of merit of one run, in a sentence."""
    metric = METRIC_NAMES[result.metric]
    return (
        f"test {metric} {percent(result.test)} (validation {percent(result.val)}), "
        f"from epoch {result.best_epoch + 1} of {len(result.history)}"
    )


def _print_runs(results: Sequence[TrainResult]) -> None:
    """Print figures of merit of several runs: mean and deviation first."""
    metric = METRIC_NAMES[results[0].metric]
    print_sentence(f"{metric} of {len(results)} runs, in %: mean and deviation, then each run")
    scores = [np.array([100 * getattr(result, part) for result in results]) for part in ("test", "val")]
    rows = [["mean", *(f"{number:.2f}" for run in scores for number in (run.mean(), run.std(ddof=1))), ""]]
    for number, result in enumerate(results):
        epoch = f"{result.best_epoch + 1}/{len(result.history)}"
        rows.append([str(number), f"{100 * result.test:.2f}", "", f"{100 * result.val:.2f}", "", epoch])
    print_table(["run", "test", "+-", "validation", "+-", "best epoch"], rows)


def _notes(results: Sequence[TrainResult]) -> Iterator[str]:
    """Yield sentences beside the figures of merit."""
    if all(result.sampled for result in results):
        parts = {"test": "test", "validation": "val"}
        figures = [f"{word} {_mean([(r.sampled or {})[part] for r in results])}" for word, part in parts.items()]
        yield "with sampled neighbourhoods: " + ", ".join(figures)
    yield from dict.fromkeys(note for result in results for note in result.notes)
    if results[0].bayes_rate is not None:
        yield f"Bayes rate {percent(results[0].bayes_rate)}: no model does better"


def percent(value: float) -> str:
    """A share of 1, as people read it."""
    return f"{100 * value:.2f} %"


def _mean(values: Sequence[float]) -> str:
    spread = f" +- {100 * np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.2f}{spread} %"
