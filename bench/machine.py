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
    """Processor, GPU, cores, caches, instruction set, version and commit of the sources."""
    from spsample import _core

    return {
        "processor": _processor(),
        "gpu": _gpu(),
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
    return _said("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12")


def _gpu() -> str:
    """Name, memory and driver of each; empty where there is none."""
    return _said("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")


def _said(*command: str) -> str:
    """What a program says; nothing where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()
