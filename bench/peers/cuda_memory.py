"""The GPU's memory as a peer: copying as many bytes as a task must move."""

from __future__ import annotations

import cupy

from peers.cuda_timing import timed
from peers.task import Figures, Inputs, Options, Task, Work

PACKAGES = ("cupy",)

BUFFER = 2 << 30
"""Bytes of each side of a copy: far beyond the caches."""


def copy(inputs: Inputs, options: Options) -> Work:
    """`bytes` read and written in all, by copies of half as many within the device's memory."""
    source, target = (cupy.empty(BUFFER, cupy.uint8) for _ in range(2))
    moved = int(options["bytes"])

    def work() -> Figures:
        for begin in range(0, moved // 2, BUFFER):
            count = min(moved // 2 - begin, BUFFER)
            target.data.copy_from_device_async(source.data, count)
        return {"batches": options["batches"], "bytes": moved}

    return timed(work, cupy.cuda.Event)


TASKS: dict[str, Task] = {"copy": copy}
