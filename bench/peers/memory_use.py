"""Peak memory of a call, as the system counts it."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_beyond(call: Callable[[], T]) -> tuple[int, T]:
    """Bytes resident at the peak of the call beyond those before it, and its result.

    Linux sets the mark of the peak back first. Elsewhere the peak is that of the process so far, so that what was
    allocated and freed before can hide the call's own.
    """
    if not STATUS.exists():
        before = peak_so_far()
        result = call()
        return peak_so_far() - before, result
    CLEAR_REFS.write_text("5")
    before = _status("VmRSS")
    result = call()
    return _status("VmHWM") - before, result


def _status(field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def peak_so_far() -> int:
    """Most bytes that were ever resident in this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
