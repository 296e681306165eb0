"""Means of a conversion: the compiled kernels, threads, and memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spsample.common.threads import compiled_core
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import BackendError, InputError
from spsample.planning.bulk_plan import default_budget

_MIN_ROOM = 24 * 2**20
_SLACK = 48 * 2**20
_MAX_CHUNK = 1 << 22
_BUCKET = 1 << 20
_UNKNOWN_BASE = 160 * 2**20


def core() -> Any:
    """Return the compiled core.

    Raises
    ------
    BackendError
        If it is missing.
    """
    core = compiled_core()
    if core is None:
        raise BackendError("conversions need the compiled core of spsample, which is missing here: install the package")
    return core


@dataclass(frozen=True)
class SortPlan:
    """Sizes that keep a conversion within its memory.

    `chunk`: edges that one thread reads at a time; `capacity`: entries that one thread sorts at a time; `bucket`:
    entries of a bucket where they can be had (few enough for a processor's cache).
    """

    chunk: int
    capacity: int
    bucket: int
    threads: int


def make_plan(budget: Any, threads: int, weight_bytes: int) -> SortPlan:
    """Return the sizes for a budget in bytes, of which the process already holds some.

    Raises
    ------
    InputError
        If there is too little.
    """
    total = default_budget() if budget is None else require_bytes("memory_budget", budget)
    held = anonymous_bytes()
    room = total - held - _SLACK
    if room < _MIN_ROOM:
        raise InputError(
            argument="memory_budget",
            given=format_bytes(total),
            expected=f"at least {format_bytes(held + _SLACK + _MIN_ROOM)}",
            hint=f"This process holds {format_bytes(held)} already.",
        )
    share = room // (threads + 1)  # one share for what waits between threads and for memory that the kernels keep
    chunk = min(_MAX_CHUNK, share // (64 + 4 * weight_bytes))
    capacity = min(1 << 31, share // (56 + 2 * weight_bytes))
    return SortPlan(chunk, capacity, min(capacity, _BUCKET), threads)


def anonymous_bytes() -> int:
    """Bytes of anonymous resident memory of this process (Linux), or a cautious constant."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return _UNKNOWN_BASE
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return _UNKNOWN_BASE
