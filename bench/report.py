"""What was measured: medians, spread and ratios, as JSON lines, a table and a plot."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from rich.table import Table

from figures import pyplot

ALLOWED_OVER_OUTPUT = 1.15  # peak memory of a call over the bytes of its result, scratch apart

Figures = dict[str, float]


@dataclass(frozen=True)
class Turn:
    """One timed run: wall and CPU seconds, and what the work counted."""

    seconds: float
    cpu_seconds: float
    figures: Figures

    @property
    def seconds_per_batch(self) -> float:
        """Sides of a case may differ in how many batches they do."""
        return self.seconds / self.figures["batches"]


@dataclass(frozen=True)
class Result:
    """One side of a case over all rounds, times in seconds.

    `over_baseline` is the median over rounds of this side's time per batch over the baseline's in the same round, with
    the least and the most; None where the baseline is missing. `figures` are those of the last round, per batch of it.
    """

    graph: str
    case: str
    side: str
    peer: str
    version: str
    rounds: int
    batches: int
    seconds_per_batch: float
    fastest: float
    slowest: float
    cpu_seconds_per_batch: float
    over_baseline: float | None
    least_over_baseline: float | None
    most_over_baseline: float | None
    baseline: str
    figures: Figures = field(default_factory=dict)


def ratios(turns: list[Turn], baseline: list[Turn]) -> list[float]:
    """Time per batch over the baseline's, round by round."""
    return [a.seconds_per_batch / b.seconds_per_batch for a, b in zip(turns, baseline, strict=True)]


def summary(turns: list[Turn], baseline: list[Turn] | None) -> dict[str, Any]:
    """The fields of `Result` that follow from the turns alone."""
    times = [turn.seconds_per_batch for turn in turns]
    over = ratios(turns, baseline) if baseline else None
    last = turns[-1].figures
    return {
        "rounds": len(turns),
        "batches": int(last["batches"]),
        "seconds_per_batch": statistics.median(times),
        "fastest": min(times),
        "slowest": max(times),
        "cpu_seconds_per_batch": statistics.median(t.cpu_seconds / t.figures["batches"] for t in turns),
        "over_baseline": statistics.median(over) if over else None,
        "least_over_baseline": min(over) if over else None,
        "most_over_baseline": max(over) if over else None,
        "figures": {name: value / last["batches"] for name, value in last.items() if name != "batches"},
    }


def write_lines(path: Path, header: dict[str, Any], results: Iterable[Result], missing: Iterable[str]) -> None:
    """The machine first, then what is missing, then one line per side."""
    records = [
        {"kind": "machine", **header},
        *({"kind": "missing", "what": text} for text in missing),
        *({"kind": "result", **asdict(result)} for result in results),
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def table(results: list[Result]) -> Table:
    """Milliseconds per batch and how many times as fast as the baseline."""
    columns = ("ms per batch", "fastest", "slowest", "CPU ms", "time over baseline", "times as fast", "per batch")
    made = Table("case", "side", *columns)
    for before, result in zip([None, *results], results, strict=False):
        new = before is None or before.case != result.case
        if new and before is not None:
            made.add_section()
        times = (result.seconds_per_batch, result.fastest, result.slowest, result.cpu_seconds_per_batch)
        made.add_row(
            result.case if new else "", result.side, *map(_milliseconds, times), *_ratio(result), _counts(result)
        )
    return made


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}"


def _ratio(result: Result) -> tuple[str, str]:
    over = result.over_baseline
    if over is None or result.side == result.baseline:
        return "1" if over else "", ""
    return f"{over:.3g} ({result.least_over_baseline:.3g} to {result.most_over_baseline:.3g})", f"{1 / over:.3g}"


def _counts(result: Result) -> str:
    """The counts for people: `330,612 edges`; memory over the bytes of the result as a ratio."""
    counts = [f"{value:,.0f} {name.replace('_', ' ')}" for name, value in result.figures.items()]
    over, of_limit = peak_over_output(result), peak_over_limit(result)
    counts += [] if over is None else [f"peak over output {over:.3g}"]
    counts += [] if of_limit is None else [f"peak over its limit {of_limit:.3g}"]
    return ", ".join(counts)


def peak_over_output(result: Result) -> float | None:
    """Peak memory of the call over the bytes of its result, where they were measured."""
    peak, output = (result.figures.get(f"{name}_bytes") for name in ("peak", "output"))
    return peak / output if peak is not None and output else None


def peak_over_limit(result: Result) -> float | None:
    """The same over 1.15 times these bytes and the scratch that the documentation states."""
    figures = [result.figures.get(f"{name}_bytes") for name in ("peak", "output", "scratch")]
    peak, output, scratch = figures
    if peak is None or output is None or scratch is None:
        return None
    return peak / (ALLOWED_OVER_OUTPUT * output + scratch)


def plot(results: list[Result], title: str, path: Path) -> None:
    """A panel of horizontal bars for each case: time per batch, with the spread; the limit as a line across."""
    plt = pyplot() if results else None
    if plt is None:
        return
    by_case = {case: [r for r in results if r.case == case] for case in dict.fromkeys(r.case for r in results)}
    heights = [len(sides) + 1.2 for sides in by_case.values()]
    figure, panels = plt.subplots(
        len(by_case), figsize=(8, 0.36 * sum(heights)), layout="constrained", height_ratios=heights, squeeze=False
    )
    for axes, (case, sides) in zip(panels.flat, by_case.items(), strict=True):
        draw = _bars if peak_over_output(sides[0]) is None else _memory_bars
        draw(axes, case, sides)
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _bars(axes: Any, case: str, sides: list[Result]) -> None:
    bars = [side for side in sides if not _is_limit(side)]
    for place, side in enumerate(reversed(bars)):
        time = side.seconds_per_batch * 1e3
        spread = [[time - side.fastest * 1e3], [side.slowest * 1e3 - time]]
        axes.barh(
            place,
            time,
            xerr=spread,
            color="C0" if side.peer.startswith("spsample") else "C7",
            error_kw={"linewidth": 1},
        )
    for limit, style in zip(filter(_is_limit, sides), cycle(("--", ":"))):
        axes.axvline(limit.seconds_per_batch * 1e3, color="C3", linestyle=style, label=limit.side)
        axes.legend(fontsize="x-small")
    axes.set_yticks(range(len(bars)), [side.side for side in reversed(bars)], fontsize="small")
    axes.set_title(case, fontsize="small", loc="left")
    axes.set_xlabel("ms per batch", fontsize="x-small")
    axes.set_xlim(left=0)


def _memory_bars(axes: Any, case: str, sides: list[Result]) -> None:
    for place, side in enumerate(reversed(sides)):
        axes.barh(place, peak_over_output(side), color="C0")
    axes.axvline(1, color="C3", linestyle="--")
    axes.set_yticks(range(len(sides)), [side.side for side in reversed(sides)], fontsize="small")
    axes.set_title(case, fontsize="small", loc="left")
    axes.set_xlabel("peak over bytes of the result", fontsize="x-small")


def _is_limit(result: Result) -> bool:
    return result.peer == "memory"
