"""Processor, caches, memory and its limits, as Linux tells them; elsewhere little is known."""

from __future__ import annotations

import os
import platform
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from spsample.cli.machine.finding import Finding, read_text
from spsample.common.memory import CGROUPS, control_groups
from spsample.common.threads import usable_cores
from spsample.common.units import format_bytes

__all__ = ["memory", "processor"]

_CPU = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_CGROUPS = CGROUPS
_UNLIMITED = 2**60


def processor() -> list[Finding]:
    """Processor, caches, NUMA nodes."""
    match = re.search(r"^model name\s*:\s*(.+)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    name = match[1] if match else platform.processor() or platform.machine() or "unknown"
    cores, usable = os.cpu_count() or 1, usable_cores()
    findings = [Finding("processor", "processor", "ok", f"{name}; {cores} cores, {usable} usable by this process")]
    quota = _cpu_quota()
    if quota is not None and quota < usable:
        advice = f"export OMP_NUM_THREADS={max(1, int(quota))}"
        findings.append(Finding("processor", "cgroup", "warning", f"limited to {quota:g} processors' time", advice))
    caches = [_cache(index) for index in sorted((_CPU / "cpu0" / "cache").glob("index*"))]
    findings.append(Finding("processor", "caches", "ok", ", ".join(filter(None, caches)) or "unknown"))
    nodes = len(list(_NODES.glob("node[0-9]*"))) or 1
    advice = "bind each process to one node, such as numactl --cpunodebind=0 --membind=0" if nodes > 1 else ""
    findings.append(Finding("processor", "NUMA nodes", "ok", str(nodes), advice))
    return findings


def memory() -> list[Finding]:
    """Memory, limits on it, huge pages."""
    sizes = {key: int(size) * 1024 for key, size in re.findall(r"^(\w+):\s+(\d+) kB", read_text("/proc/meminfo"), re.M)}
    findings = []
    if "MemTotal" in sizes:
        text = f"{format_bytes(sizes['MemTotal'])}, {format_bytes(sizes.get('MemAvailable', 0))} available"
        findings.append(Finding("memory", "memory", "ok", text))
    else:
        findings.append(Finding("memory", "memory", "warning", "unknown: there is no /proc/meminfo"))
    limit = cgroup_limit()
    total = sizes.get("MemTotal", _UNLIMITED)
    if limit is not None and limit < total:
        text = f"limited to {format_bytes(limit)} by a cgroup (container or job)"
        findings.append(Finding("memory", "cgroup", "warning", text, "give --memory-budget below it"))
    for name, kind in (("address space", resource.RLIMIT_AS), ("data", resource.RLIMIT_DATA)):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY and 0 <= soft < _UNLIMITED:
            advice = "ulimit -v unlimited: memory maps of stores count" if kind == resource.RLIMIT_AS else ""
            findings.append(Finding("memory", f"limit on {name}", "warning", format_bytes(soft), advice))
    findings.append(_huge_pages())
    return findings


def _huge_pages() -> Finding:
    mode = re.search(r"\[(\w+)\]", read_text(_HUGE))
    if mode is None:
        return Finding("memory", "transparent huge pages", "missing", "unknown to this system")
    if mode[1] == "never":
        advice = f"as root: echo madvise > {_HUGE}; random reads of large graphs are faster with them"
        return Finding("memory", "transparent huge pages", "warning", "never", advice)
    return Finding("memory", "transparent huge pages", "ok", mode[1])


def _cache(index: Path) -> str:
    kind, level, size = (read_text(index / name) for name in ("type", "level", "size"))
    return f"L{level}{'i' if kind == 'Instruction' else 'd' if kind == 'Data' else ''} {size}" if size else ""


def cgroup_limit() -> int | None:
    """Return the least memory limit of this process's cgroups, in bytes; None without one."""
    limits = []
    for folder, version in _cgroups("memory"):
        text = read_text(folder / ("memory.limit_in_bytes" if version == 1 else "memory.max"))
        if text.isdigit() and int(text) < _UNLIMITED:
            limits.append(int(text))
    return min(limits, default=None)


def _cpu_quota() -> float | None:
    """Return how many processors' time the cgroups allow."""
    quotas = []
    for folder, version in _cgroups("cpu"):
        if version == 1:
            words = [read_text(folder / f"cpu.cfs_{part}_us") for part in ("quota", "period")]
        else:
            words = read_text(folder / "cpu.max").split()
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _cgroups(controller: str) -> Iterator[tuple[Path, int]]:
    return control_groups(read_text("/proc/self/cgroup"), controller, _CGROUPS)
