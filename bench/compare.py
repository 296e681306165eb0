"""Two runs of the same cases: what became slower beyond the noise, and which counts differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spsample.errors import InputError

from .case import Case, declared
from .records import Line, read_lines
from .tables import latest, per_batch

EXACT = ("messages", "edges", "rows", "hits", "page_faults", "pool_peak_bytes")
"""Counts that two runs share; and all that end in ``_bytes``, but for measured peaks."""
SLOWER = 1.05
"""Between two runs of the same code a machine is a few percent faster or slower."""
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
    """Times whose ratio is above `SLOWER`, or below its inverse, with all of its interval; and counts that differ.

    Where the baseline is no code of ours, times are ratios to it, round by round, which the state of the machine
    changes least; elsewhere, or where the runs have different baselines, seconds of the processor. The ratio is the
    median over all pairs of rounds of the two runs (Hodges and Lehmann, 1963), its interval is by bootstrap over
    rounds, of 99 % for all sides together. Counts are compared round by round. A side that failed is worse than one
    that was measured.

    Raises
    ------
    InputError
        If the files have no side of a cell in common.
    """
    old, new = _sides(before), _sides(after)
    shared = old.keys() & new.keys()
    if not shared:
        raise InputError(
            argument="AFTER",
            given=f"{after}, which has no cell and side of {before}",
            expected="results of the same case with some of the same parameters",
        )
    found: list[Difference] = []
    for where in shared:
        a, b = old[where], new[where]
        failed = "failed" in a, "failed" in b
        if failed[0] != failed[1]:
            found.append(Difference(where, "failures", *map(float, failed), float(failed[1]), failed[1]))
        elif not failed[0]:
            level = _LEVEL / len(shared)  # one alarm in a hundred runs, however many sides
            found += _counts(where, a, b) + _times(where, _comparable(a, b), _comparable(b, a), level)
    return sorted(found)


def only_in(path: Path, other: Path) -> list[str]:
    """Sides of cells of a file that the other one lacks, and that are not compared."""
    return sorted(_sides(path).keys() - _sides(other).keys())


def _sides(path: Path) -> dict[str, Line]:
    """Sides by case, cell and name; each with its `base`."""
    found, name = {}, ""
    for _, _, line in latest(read_lines(path)):
        if line["kind"] == "machine":
            name = line["case"]
            continue
        case: Case = declared("cases", name)
        cell = ", ".join(f"{key}={value}" for key, value in line["cell"].items())
        base = case.baseline_of(line["sides"])
        for side in line["sides"]:
            if side["peer"] == "spsample" and (side.get("seconds") or "failed" in side):
                found[f"{name}: {cell}: {side['side']}"] = {**side, "base": base}
    return found


def _comparable(side: Line, other: Line) -> list[float]:
    """Times of a side as those of the other run can be compared with: over the same baseline, where both have it."""
    base = side["base"]
    theirs = [one["side"] if one else "" for one in (base, other["base"])]
    if base is None or base["peer"] == "spsample" or theirs[0] != theirs[1]:
        return per_batch(side, "cpu_seconds")
    return [mine / theirs for mine, theirs in zip(per_batch(side), per_batch(base), strict=False)]


def _counts(where: str, old: Line, new: Line) -> list[Difference]:
    """Those that differ in the same round, by the last."""
    shared = old["figures"].keys() & new["figures"].keys()
    exact = [name for name in shared if name in EXACT or (name.endswith("_bytes") and not name.startswith("peak"))]
    found = []
    for name in exact:
        pairs = [(a, b) for a, b in zip(old["figures"][name], new["figures"][name], strict=False) if a != b]
        for a, b in pairs[-1:]:
            found.append(Difference(where, name, a, b, b / a if a else np.inf, (b > a) != (name == "hits")))
    return found


def _times(where: str, old: list[float], new: list[float], level: float) -> list[Difference]:
    a, b = np.array(old), np.array(new)
    if min(len(a), len(b)) < 3 or min(a.min(), b.min()) <= 0:
        return []
    rng = np.random.default_rng(0)
    drawn_a, drawn_b = (np.log(v)[rng.integers(0, len(v), (_RESAMPLES, len(v)))] for v in (a, b))
    shifts = np.median((drawn_b[:, :, None] - drawn_a[:, None, :]).reshape(_RESAMPLES, -1), axis=1)
    least, most = np.exp(np.quantile(shifts, (level / 2, 1 - level / 2))).tolist()
    if least <= SLOWER and most >= 1 / SLOWER:
        return []
    middle: tuple[Any, Any] = (float(np.median(a)), float(np.median(b)))
    return [Difference(where, "time", *middle, least, least > SLOWER)]
