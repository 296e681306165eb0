"""Cells on ranks: the sides take turns in the ranks of a launcher, which all do the work together."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

from spsample.comm import Communicator, all_gather_object, collective
from spsample.errors import SpSampleError
from spsample.sparse import set_num_threads

from .case import Case, Side, Values
from .inputs import Inputs
from .records import Line
from .turns import Settings, add_turn
from .worker import timed


def measure_on_ranks(case: Case, cell: Values, store: Path, comm: Communicator, settings: Settings) -> Line:
    """The line of a cell; collective. The time of a turn is that of the slowest rank."""
    sides = [side for side in case.sides if settings.wants(side)]
    records: dict[str, Line] = {side.name: {"seconds": [], "cpu_seconds": [], "figures": {}} for side in sides}
    threads = int(cell.get("threads", 1))
    _use_threads(threads)
    works = {side.name: _prepared(side, cell, store, comm, records[side.name]) for side in sides}
    for number in range(1 if case.exact else settings.rounds + 1):
        for side in sides if number % 2 == 0 else reversed(sides):
            if works[side.name] is not None:
                keep = case.exact or number > 0
                works[side.name] = _turn(works[side.name], comm, records[side.name], keep=keep)
    shared = {"peer": "spsample", "is_limit": False, "threads": threads, "versions": {}}
    return {"kind": "cell", "cell": cell, "sides": [{"side": name, **shared, **of} for name, of in records.items()]}


def _use_threads(count: int) -> None:
    """Of this process, for spsample and torch, whether that is loaded already or will be."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    set_num_threads(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def _prepared(side: Side, cell: Values, store: Path, comm: Communicator, record: Line) -> Any:
    """The work of a side, or None where it failed, which the record says."""
    try:
        with collective(comm, call=f"the preparation of {side.name}"):
            return side.task(Inputs(store, {**cell, **side.options}, comm))
    except SpSampleError as error:
        _fail(record, error)
        return None


def _turn(work: Any, comm: Communicator, record: Line, *, keep: bool) -> Any:
    """Do the work once; it, or None where it failed."""
    gc.collect()
    comm.barrier()
    try:
        with collective(comm, call="a turn of the benchmark"):
            mine = timed(work)
    except SpSampleError as error:
        _fail(record, error)
        return None
    if keep:
        add_turn(record, together(all_gather_object(comm, mine)))
    return work


def _fail(record: Line, error: Exception) -> None:
    record.clear()
    record["failed"] = f"{type(error).__name__}: {error}"


def together(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """One turn of all ranks: the longest time, the highest peak, counts and bytes added up, the mean of all else.

    Examples
    --------
    >>> turns = [{"seconds": s, "cpu_seconds": 1.0, "figures": {"sent_bytes": 8, "hits": s}} for s in (0.5, 1.0)]
    >>> together(turns)
    {'seconds': 1.0, 'cpu_seconds': 2.0, 'figures': {'sent_bytes': 16, 'hits': 0.75}}
    """
    figures = {}
    for name in ranks[0]["figures"]:
        values = [rank["figures"][name] for rank in ranks]
        if name.startswith("peak"):
            figures[name] = max(values)
        elif name.endswith("_bytes") or name in ("edges", "rows", "messages"):
            figures[name] = sum(values)
        else:
            figures[name] = sum(values) / len(values)
    seconds = max(rank["seconds"] for rank in ranks)
    return {"seconds": seconds, "cpu_seconds": sum(rank["cpu_seconds"] for rank in ranks), "figures": figures}
