"""Memory that this process may still take."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
FALLBACK = 4 << 30
"""Bytes where the system gives no number."""
UNLIMITED = 1 << 60
"""Limits of version 1 from here on stand for no limit."""


def available_memory(proc: Path = Path("/proc"), cgroups: Path = CGROUPS) -> int:
    """Return the bytes that can be allocated now without swapping: of the machine and this process's control groups.

    Memory of a group that holds files which can be read again counts as available. 4 GiB where no limit is known.

    Examples
    --------
    >>> available_memory() > 0
    True
    """
    limits = [*_machine(proc), *_groups(proc, cgroups)]
    return max(min(limits), 0) if limits else FALLBACK


@cache
def most_memory() -> int:
    """Return the bytes that this process could ever have: of the machine and all its control groups; read once.

    Examples
    --------
    >>> most_memory() >= available_memory()
    True
    """
    groups = (_limit(folder, version) for folder, version in _folders(Path("/proc"), CGROUPS))
    return min([_whole_machine(), *(limit for limit in groups if limit is not None)])


def _whole_machine() -> int:
    if {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(getattr(os, "sysconf_names", ())):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return FALLBACK


def _machine(proc: Path) -> Iterator[int]:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB$", (proc / "meminfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    if match:
        yield int(match[1]) << 10
    elif (whole := _whole_machine()) != FALLBACK:
        yield whole


def _groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield the bytes left in each control group with a limit."""
    for folder, version in _folders(proc, cgroups):
        limit = _limit(folder, version)
        if limit is not None:
            yield limit - _used(folder, version)


def _folders(proc: Path, cgroups: Path) -> Iterator[tuple[Path, int]]:
    return control_groups(_text(proc / "self" / "cgroup"), "memory", cgroups)


def control_groups(text: str, controller: str, cgroups: Path = CGROUPS) -> Iterator[tuple[Path, int]]:
    """Yield the folders of a process's control groups, and their version (1 or 2).

    Of each hierarchy that has the controller: from the process's own group up to the root, which in a container is the
    container's own group, whatever its path is called outside. ``text`` is that of ``/proc/self/cgroup``; other lines
    are skipped.

    Examples
    --------
    >>> [(str(folder), version) for folder, version in control_groups("4:memory:/job", "memory")]
    [('/sys/fs/cgroup/memory/job', 1), ('/sys/fs/cgroup/memory', 1)]
    """
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or (controllers and controller not in controllers.split(",")):
            continue
        root = _root(controllers, controller, cgroups) if controllers else _unified(cgroups)
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            yield folder, 1 if controllers else 2
            if folder == root:
                break


def _root(controllers: str, controller: str, cgroups: Path) -> Path:
    """Return the mount of a hierarchy of version 1: under the names of all its controllers, or under one of them."""
    together = cgroups / controllers
    return together if together.exists() else cgroups / controller


def _unified(cgroups: Path) -> Path:
    """Return the mount of the hierarchy of version 2: by itself, or beside those of version 1."""
    beside = cgroups / "unified"
    return beside if beside.exists() else cgroups


_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
_RECLAIMABLE = {1: "total_(?:in)?active_file", 2: "(?:in)?active_file"}


def _limit(folder: Path, version: int) -> int | None:
    """Return the bytes that a group may have; None where it has no limit."""
    limit = _number(_text(folder / _LIMIT[version]))
    return None if limit is None or limit >= UNLIMITED else limit


def _used(folder: Path, version: int) -> int:
    """Return the bytes that a group has, without files that can be read again; 0 where unknown."""
    files = re.findall(rf"^{_RECLAIMABLE[version]} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
    return (_number(_text(folder / _USAGE[version])) or 0) - sum(map(int, files))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None
