"""A timeline as a picture: one row for each thread of each rank. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spsample.common.checks import require_int, require_path, require_type, short
from spsample.errors import InputError, require_module
from spsample.timeline.figures import save_figure
from spsample.timeline.trace_file import Trace, TraceSpan, read_trace

__all__ = ["plot_timeline"]

_COLORS = {
    "sampling": "#2b6cb0",
    "features": "#dd8b3a",
    "copies": "#d69e2e",
    "training": "#38a169",
    "evaluation": "#805ad5",
    "waiting": "#d5dae2",
    "waiting for ranks": "#e9b8b0",
    "sharing out": "#63b3ed",
    "collate": "#f6c68f",
    "forward": "#68d391",
    "backward": "#276749",
    "exchanging gradients": "#c53030",
    "optimisation": "#b7e4c7",
}
_OTHERS = ("#0987a0", "#b83280", "#975a16", "#5a67d8", "#4a5568")
_GREY = "#4a5568"
_ROW, _PART = 0.8, 0.4


class _Bar(NamedTuple):
    """A span in a row, in seconds."""

    label: str
    begin: float
    seconds: float
    is_part: bool


def plot_timeline(trace: str | Path, path: str | Path, *, steps: tuple[int, int] | None = None) -> None:
    """Draw a timeline: one row for each thread of each rank, one colour for each kind of work, waiting in pale ones.

    Parameters
    ----------
    trace
        A file of ``spsample train --trace`` or of `Timeline`; it is read into memory whole.
    path
        The picture: ``.png``, ``.pdf`` or ``.svg``.
    steps
        Only from the beginning of the first of these steps to the end of the last, counted from 0 in the spans
        "training" of the lowest rank that have a batch. None: all there is.

    Raises
    ------
    DataError
        If the file is no trace.
    InputError
        If it has no spans, or not these steps.
    MissingDependencyError
        If matplotlib is not installed.
    """
    source, picture = require_path("trace", trace), require_path("path", path)
    found = read_trace(source)
    if not found.spans:
        raise InputError(argument="trace", given=f"{str(source)!r} without spans", expected="at least one span")
    begin, end = _window(found.spans, steps)
    labels, rows = _rows(found, begin, end)
    _draw(labels, rows, end - begin, picture)


def _window(spans: list[TraceSpan], steps: tuple[int, int] | None) -> tuple[float, float]:
    """What is shown, in seconds of the trace."""
    if steps is None:
        return min(span.begin for span in spans), max(span.end for span in spans)
    words = "two numbers: the first step and the last"
    require_type("steps", steps, (tuple, list), words)
    if len(steps) != 2:
        raise InputError(argument="steps", given=short(steps), expected=words)
    lowest = min(span.thread[0] for span in spans)
    training = [span for span in spans if span.thread[0] == lowest and span.name == "training"]
    begins = sorted(span.begin for span in training if span.has_batch)
    if not begins:
        raise InputError(argument="steps", given=f"{short(steps)} of a trace without steps", expected="None")
    first = require_int("steps[0]", steps[0], minimum=0, maximum=len(begins) - 1)
    last = require_int("steps[1]", steps[1], minimum=first, maximum=len(begins) - 1)
    ends = [*begins, max(span.end for span in training)]
    return begins[first], ends[last + 1]


def _rows(trace: Trace, begin: float, end: float) -> tuple[list[str], list[list[_Bar]]]:
    """Names of the threads, by rank, and what is seen of their spans."""
    seen: dict[tuple[int, int], list[_Bar]] = {span.thread: [] for span in trace.spans}
    for span in trace.spans:
        left, right = max(span.begin, begin), min(span.end, end)
        if left < right:
            seen[span.thread].append(_Bar(_label(span.name), left - begin, right - left, span.is_part))
    threads = sorted(seen)
    several = len({rank for rank, _ in threads}) > 1
    labels = [(f"rank {one[0]}: " if several else "") + trace.threads.get(one, str(one[1])) for one in threads]
    return labels, [seen[one] for one in threads]


def _label(name: str) -> str:
    """What a span is called in the legend: kinds of waiting that the row tells apart have one name."""
    if name.endswith(" waiting for ranks"):
        return "waiting for ranks"
    return "waiting" if " waiting for " in name else name


def _draw(labels: Sequence[str], rows: Sequence[list[_Bar]], seconds: float, path: Path) -> None:
    require_module("matplotlib.figure", needed_for="plots", extra="plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 1.0 + 0.32 * len(labels)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    scale, unit = (1e3, "ms") if seconds < 2 else (1.0, "s")
    colors = _colors_of(rows)
    for place, bars in enumerate(rows):
        for label, is_part in dict.fromkeys((bar.label, bar.is_part) for bar in bars):
            alike = [bar for bar in bars if (bar.label, bar.is_part) == (label, is_part)]
            extents = [(bar.begin * scale, bar.seconds * scale) for bar in alike]
            height, zorder = (_PART, 3) if is_part else (_ROW, 2)
            axes.broken_barh(extents, (place - _ROW / 2, height), color=colors[label], linewidth=0, zorder=zorder)
    axes.set_yticks(range(len(labels)), labels)
    axes.set(xlim=(0, seconds * scale), ylim=(len(labels) - 0.4, -0.6), xlabel=unit)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_GREY)
    handles = [axes.broken_barh([], (0, 0), color=color, label=label) for label, color in colors.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(6, len(handles)), frameon=False, fontsize=9)
    save_figure(figure, path)


def _colors_of(rows: Sequence[list[_Bar]]) -> dict[str, str]:
    """The colour of each label that is seen; those of a loop of one's own get the others in turn."""
    seen = {bar.label for bars in rows for bar in bars}
    known = {label: color for label, color in _COLORS.items() if label in seen}
    own = sorted(seen - {*known})
    return known | {label: _OTHERS[number % len(_OTHERS)] for number, label in enumerate(own)}
