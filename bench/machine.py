"""The machine and the software of a run, for the first line of its results."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import spsample

ROOT = Path(__file__).resolve().parents[1]
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def machine_facts() -> dict[str, Any]:
    """Processor, cores, caches, instruction set, version and commit of the sources."""
    from spsample import _core

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "caches": cache_sizes(),
        "system": platform.platform(),
        "instruction_set": _core.instruction_set(),
        "version": spsample.__version__,
        "commit": _commit(),
    }


def cache_sizes(folder: Path = CACHES) -> dict[str, int]:
    """Bytes of each level of data cache, as Linux says; {} elsewhere."""
    sizes = {}
    for index in sorted(folder.glob("index*")):
        kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        if kind != "Instruction":
            sizes[f"L{level}"] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[-1]]
    return sizes


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return match[1] if match else platform.processor() or platform.machine()


def _commit() -> str:
    """The commit, with "-dirty" where files differ from it; empty outside of a clone."""
    if not (ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
