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
    """What is left in each control group with a limit."""
    try:
        text = (proc / "self" / "cgroup").read_text()
    except OSError:
        return
    for folder, version in control_groups(text, "memory", cgroups):
        yield from _left(folder, *(_V1 if version == 1 else _V2))


def control_groups(text: str, controller: str, cgroups: Path = CGROUPS) -> Iterator[tuple[Path, int]]:
    """Yield the folders of a process's control groups, and their version (1 or 2).

    Of each hierarchy that has the controller: from the process's own group up to the root. ``text`` is what
    ``/proc/self/cgroup`` says; other lines are passed over.

    Examples
    --------
    >>> [(str(folder), version) for folder, version in control_groups("0::/job", "memory")]
    [('/sys/fs/cgroup/job', 2), ('/sys/fs/cgroup', 2)]
    """
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or (controllers and controller not in controllers.split(",")):
            continue
        root = _root(controllers, controller, cgroups) if controllers else cgroups
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            yield folder, 1 if controllers else 2
            if folder == root:
                break


def _root(controllers: str, controller: str, cgroups: Path) -> Path:
    """Where a hierarchy of version 1 is mounted: under the names of all its controllers, or under one of them."""
    together = cgroups / controllers
    return together if together.exists() else cgroups / controller


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
