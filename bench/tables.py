"""Results as tables: a row for each side of each cell, with medians, spread and ratios."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from .case import declared
from .records import Line, Located, read_lines

TIMES = ("ms", "fastest_ms", "slowest_ms", "cpu_ms")
RATIOS = ("over_baseline", "least", "most")


def table_of(paths: Iterable[Path]) -> pd.DataFrame:
    """One row for each side of each line.

    ``ms`` is the median time per batch, ``over_baseline`` the median over rounds of the ratio to the baseline's in the
    same round, from ``least`` to ``most``; figures are medians. ``line`` says where the row comes from.
    """
    rows: list[dict[str, Any]] = []
    for path in paths:
        header: Line = {}
        for where, number, line in latest(read_lines(path)):
            if line["kind"] == "machine":
                header = line
            else:
                place = {"case": header["case"], "line": f"{label(where)}:{number}", "commit": header.get("commit", "")}
                rows += rows_of(line, {**place, "instruction_set": header["instruction_set"]})
    return pd.DataFrame(rows)


def latest(lines: list[Located]) -> list[Located]:
    """The lines without those of cells that were measured again."""
    last = {repr(line["cell"]): number for _, number, line in lines if "cell" in line}
    return [one for one in lines if "cell" not in one.line or last[repr(one.line["cell"])] == one.number]


def rows_of(line: Line, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one line."""
    base = declared("cases", facts["case"]).baseline_of(line["sides"])
    rows = []
    for side in line["sides"]:
        row = {**facts, **line["cell"], "side": side["side"], "peer": side["peer"], "side_threads": side["threads"]}
        row |= {"is_limit": side["is_limit"], "problem": side.get("failed", "")}
        if "missing" in side:
            continue
        if "note" in side:
            row["note"] = side["note"]
        if side.get("seconds"):
            row |= _times(side) | _ratios(side, base)
            figures = {name: values for name, values in side["figures"].items() if name != "batches"}
            row |= {name: statistics.median(values) for name, values in figures.items()}
        rows.append(row)
    return rows


def label(path: Path) -> str:
    """A file of results, as pages name it: with its folder, as several figures may have the same case."""
    return f"{path.resolve().parent.name}/{path.name}"


def missing_in(paths: Iterable[Path]) -> list[str]:
    """Who could not be measured, and why."""
    sides = [side for path in paths for _, _, line in read_lines(path) for side in line.get("sides", ())]
    return list(dict.fromkeys(f"{side['peer']}: missing ({side['missing']})" for side in sides if "missing" in side))


def per_batch(side: Line, field: str = "seconds") -> list[float]:
    """Seconds of each round over the batches that it did."""
    batches = side["figures"].get("batches") or [1] * len(side[field])
    return [seconds / count for seconds, count in zip(side[field], batches, strict=True)]


def _times(side: Line) -> dict[str, float]:
    times = [1e3 * value for value in per_batch(side)]
    cpu = statistics.median(per_batch(side, "cpu_seconds"))
    return dict(zip(TIMES, (statistics.median(times), min(times), max(times), 1e3 * cpu), strict=True))


def _ratios(side: Line, base: Line | None) -> dict[str, float]:
    if base is None or base is side or not any(side["seconds"]):
        return {}
    ratios = [mine / theirs for mine, theirs in zip(per_batch(side), per_batch(base), strict=False)]
    return dict(zip(RATIOS, (statistics.median(ratios), min(ratios), max(ratios)), strict=True))


def shown(table: pd.DataFrame, parameters: Iterable[str], only: Iterable[str] | None = None) -> pd.DataFrame:
    """The parameters that vary and what was measured, as text for people; of the figures all, or `only` some."""
    parameters = [*parameters, "ranks"]
    varied = [name for name in parameters if name in table and table[name].nunique() > 1]
    known = {"case", "commit", "instruction_set", "is_limit", "line", "note", "peer", "problem", "side", "side_threads"}
    figures = [name for name in table.columns if name not in known.union(parameters, TIMES, RATIOS)]
    picked = pd.DataFrame({name: table[name].map(number) for name in [*varied, "side"]})
    picked["its threads"] = table["side_threads"].map(number)
    if "ms" in table and (table["ms"] > 0).any():
        once = not (table["fastest_ms"] < table["slowest_ms"]).any()  # where counts are measured there is one round
        picked["ms, one run" if once else "ms"] = table["ms"].where(table["ms"] > 0).map(number)
        if not once:
            picked["spread"] = [_spread(row.fastest_ms, row.slowest_ms) for row in table.itertuples()]
    if "over_baseline" in table and "spread" in picked:
        picked["over baseline"] = [_ratio(row.over_baseline, row.least, row.most) for row in table.itertuples()]
    for name in figures if only is None else [name for name in figures if name in only]:
        picked[name.replace("_", " ")] = table[name].map(number)
    picked["line"] = table["line"]
    if table["problem"].any():
        picked["problem"] = table["problem"]
    return picked


def number(value: Any) -> str:
    """A value for people, with four digits that count.

    Examples
    --------
    >>> [number(value) for value in (1234567.0, 0.123456, 12, "CSR", float("nan"))]
    ['1,234,567', '0.1235', '12', 'CSR', '']
    """
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if float(value).is_integer() or abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _spread(least: float, most: float) -> str:
    return "" if least != least else f"{number(least)} to {number(most)}"


def _ratio(median: float, least: float, most: float) -> str:
    if median != median:
        return ""
    return f"{median:.3g}" if least == most else f"{median:.3g} ({least:.3g} to {most:.3g})"
