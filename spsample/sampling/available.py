"""How much memory this process may still take."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
FALLBACK = 4 << 30  # where the system does not say


def available_memory(proc: Path = Path("/proc"), cgroups: Path = CGROUPS) -> int:
    """Bytes that can be allocated now without swapping: of the machine, and of every control group this process is in.

    Memory of a group that holds files which can be read again counts as available. 4 GiB where nothing is known.

    Examples
    --------
    >>> available_memory() > 0
    True
    """
    limits = [*_machine(proc), *_groups(proc, cgroups)]
    return max(min(limits), 0) if limits else FALLBACK


def _machine(proc: Path) -> Iterator[int]:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB$", (proc / "meminfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    if match:
        yield int(match[1]) << 10
    elif hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(os.sysconf_names):
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """What is left in each control group with a limit, from this process's own up to the root (versions 1 and 2)."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = cgroups / "memory" if controllers else cgroups
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            yield from _left(folder, *(_V1 if controllers else _V2))
            if folder == root:
                break


_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _left(folder: Path, limit: str, usage: str, reclaimable: str) -> Iterator[int]:
    """Limit minus usage, where there is a limit."""
    try:
        most, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
        files = re.search(rf"^{reclaimable} (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return
    if most != "max":
        yield int(most) - used + (int(files[1]) if files else 0)
