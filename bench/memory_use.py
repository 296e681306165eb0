"""The peak of resident memory of a piece of work, as Linux counts it."""

from __future__ import annotations

import ctypes
import gc
import re
import resource
import sys
from pathlib import Path

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def release_unused() -> None:
    """Give memory that nothing uses back to the system."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def begin_peak() -> int:
    """Set the mark of the peak back; bytes resident now. Elsewhere than on Linux the peak stays that of the process."""
    if not _STATUS.exists():
        return peak_bytes()
    _CLEAR_REFS.write_text("5")
    return _status("VmRSS")


def peak_bytes() -> int:
    """Most bytes that were resident since `begin_peak`."""
    if _STATUS.exists():
        return _status("VmHWM")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def _status(field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB$", _STATUS.read_text("ascii"), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
