"""What a process holds, and by how much it has grown: what the soaks look at."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np

MIB = 1 << 20


def anonymous_memory():
    """Bytes of this process that no file holds (`RssAnon` of Linux)."""
    gc.collect()
    return 1024 * int(Path("/proc/self/status").read_text("ascii").split("RssAnon:")[1].split()[0])


def growth(samples):
    """MiB of (seconds, bytes): first, last, largest; their slope per hour; how much the last quarter is over the first.

    The slope is that of least squares, the growth is between medians. Nothing is said of fewer than eight.
    """
    if len(samples) < 8:
        return {}
    seconds, values = (np.array(column, np.float64) for column in zip(*samples, strict=True))
    quarter = len(values) // 4
    facts = {
        "first": values[0],
        "last": values[-1],
        "largest": values.max(),
        "slope per hour": np.polyfit(seconds / 3600, values, 1)[0],
        "growth": np.median(values[-quarter:]) - np.median(values[:quarter]),
    }
    return {name: round(float(value) / MIB, 2) for name, value in facts.items()}
