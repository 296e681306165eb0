"""Two runs of the same cases: what became slower beyond the noise, and which counts differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .case import Case, declared
from .records import Line, read_lines
from .tables import per_batch

EXACT = ("messages", "edges", "rows", "hits", "page_faults", "pool_peak_bytes")
"""Counts that two runs share; and all that end in ``_bytes``, but for measured peaks."""
SLOWER = 1.03
_RESAMPLES, _LEVEL = 2000, 0.01


class Difference(NamedTuple):
    """One figure of one side that changed.

    Attributes
    ----------
    where : str
        Case, cell and side.
    figure : str
    before, after : float
    least : float
        The lower end of the interval of the ratio of times; that of counts itself.
    is_worse : bool
    """

    where: str
    figure: str
    before: float
    after: float
    least: float
    is_worse: bool


def differences(before: Path, after: Path) -> list[Difference]:
    """Times whose ratio is above `SLOWER`, or below its inverse, with all of its 99 % interval; and counts that differ.

    Where the baseline is no code of ours, times are ratios to it, round by round, which the state of the machine
    changes least; elsewhere seconds of the processor. The ratio is the median over all pairs of rounds of the two runs
    (Hodges and Lehmann, 1963), its interval is by bootstrap over rounds.
    """
    old, new = _sides(before), _sides(after)
    found: list[Difference] = []
    for where in old.keys() & new.keys():
        found += _counts(where, old[where], new[where]) + _times(where, old[where], new[where])
    return sorted(found)


def _sides(path: Path) -> dict[str, Line]:
    """Sides by case, cell and name; each with its `times`."""
    found, name = {}, ""
    for _, _, line in read_lines(path):
        if line["kind"] == "machine":
            name = line["case"]
            continue
        case: Case = declared("cases", name)
        cell = ", ".join(f"{key}={value}" for key, value in line["cell"].items())
        base = case.baseline_of(line["sides"])
        for side in line["sides"]:
            if side.get("seconds") and side["peer"] == "spsample":
                found[f"{name}: {cell}: {side['side']}"] = {**side, "times": _comparable(side, base)}
    return found


def _comparable(side: Line, base: Line | None) -> list[float]:
    if base is None or base["peer"] == "spsample":
        return per_batch(side, "cpu_seconds")
    return [mine / theirs for mine, theirs in zip(per_batch(side), per_batch(base), strict=False)]


def _counts(where: str, old: Line, new: Line) -> list[Difference]:
    shared = old["figures"].keys() & new["figures"].keys()
    exact = [name for name in shared if name in EXACT or (name.endswith("_bytes") and not name.startswith("peak"))]
    pairs = [(name, old["figures"][name][-1], new["figures"][name][-1]) for name in exact]
    return [Difference(where, name, a, b, b / a if a else np.inf, b > a) for name, a, b in pairs if a != b]


def _times(where: str, old: Line, new: Line) -> list[Difference]:
    a, b = np.array(old["times"]), np.array(new["times"])
    if min(len(a), len(b)) < 3 or a.min() <= 0:
        return []
    rng = np.random.default_rng(0)
    drawn_a, drawn_b = (np.log(v)[rng.integers(0, len(v), (_RESAMPLES, len(v)))] for v in (a, b))
    shifts = np.median((drawn_b[:, :, None] - drawn_a[:, None, :]).reshape(_RESAMPLES, -1), axis=1)
    least, most = np.exp(np.quantile(shifts, (_LEVEL / 2, 1 - _LEVEL / 2))).tolist()
    if least <= SLOWER and most >= 1 / SLOWER:
        return []
    middle: tuple[Any, Any] = (float(np.median(a)), float(np.median(b)))
    return [Difference(where, "time", *middle, least, least > SLOWER)]
