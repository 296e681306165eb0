"""What recorded results on a GPU say: edges per second, how many times as fast, share of the limit."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from gpu.cases import GOALS, LIMIT, OURS
from report import Result, Turn, ratios, write_lines

Record = dict[str, Any]


@dataclass(frozen=True)
class Ratio:
    """Time per batch of `over` over that of `side`, round by round: how many times as fast `side` is."""

    graph: str
    case: str
    side: str
    over: str
    times_as_fast: float
    least: float
    most: float


def ratios_of(graph: str, case: str, side: str, turns: dict[str, list[Turn]]) -> list[Ratio]:
    """Of one side of a case to each other one; none where the side was not measured."""
    if side not in turns:
        return []
    made = []
    for other, theirs in turns.items():
        if other != side:
            times = ratios(theirs, turns[side])
            made.append(Ratio(graph, case, side, other, statistics.median(times), min(times), max(times)))
    return made


def write(path: Path, header: Record, results: list[Result], compared: list[Ratio], missing: Iterable[str]) -> None:
    """JSON lines: the machine, what is missing, a line for each side, and one for each ratio."""
    write_lines(path, header, results, missing)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"kind": "ratio", **asdict(ratio)}) + "\n" for ratio in compared)


def read(path: Path) -> list[Record]:
    """The lines of a file of results."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def summary_table(records: list[Record]) -> Table:
    """A row for each side: time, sampled edges per second, times as fast as ours the other way round, and the limit."""
    columns = ("ms per batch", "M edges per s", f"{OURS} is times as fast", "bytes per edge", "GB/s")
    table = Table("case", "side", *columns)
    compared = {(r["case"], r["side"], r["over"]): r for r in records if r["kind"] == "ratio"}
    moved = {r["case"]: r["figures"]["bytes"] for r in records if r["kind"] == "result" and "bytes" in r["figures"]}
    for record in records:
        if record["kind"] != "result":
            continue
        seconds, figures = record["seconds_per_batch"], record["figures"]
        edges, num_bytes = figures.get("edges"), moved.get(record["case"])
        ratio = compared.get((record["case"], OURS, record["side"]))
        table.add_row(
            record["case"],
            record["side"],
            f"{seconds * 1e3:.4g}",
            "" if edges is None else f"{edges / seconds / 1e6:,.4g}",
            "" if ratio is None else f"{ratio['times_as_fast']:.3g} ({ratio['least']:.3g} to {ratio['most']:.3g})",
            "" if edges is None or num_bytes is None else f"{num_bytes / edges:.3g}",
            "" if num_bytes is None else f"{num_bytes / seconds / 1e9:,.4g}",
        )
    return table


def verdicts(records: list[Record]) -> list[str]:
    """Of each case: the goals reached or missed, and the share of the memory's limit."""
    said = [f"missing: {record['what']}" for record in records if record["kind"] == "missing"]
    for record in records:
        if record["kind"] != "ratio" or record["side"] != OURS:
            continue
        case, over, times = record["case"], record["over"], record["times_as_fast"]
        if over == LIMIT:
            said.append(f"{case}: {times:.1%} of the limit, the time to copy the bytes that must move")
        elif over in GOALS:
            reached = "reached" if times >= GOALS[over] else "missed"
            said.append(f"{case}: {times:.3g} times as fast as {over} (goal {GOALS[over]:g}: {reached})")
    return said
