"""The GPU's memory and its bus: copies of as many bytes as a task must move."""

from __future__ import annotations

from typing import Any

from .. import gpu
from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs

BUFFER = 1 << 30
"""Bytes of each side of a copy at most: far beyond the caches."""


def within(inputs: Inputs) -> Work:
    """Half of a bulk's ``batch_bytes`` read and as many written, within the memory of the GPU."""
    cupy = gpu.cupy()
    source = cupy.empty(BUFFER, cupy.uint8)
    return _copies(inputs, inputs["batch_bytes"] / 2, lambda to, count: to.copy_from_device_async(source.data, count))


def over_bus(inputs: Inputs) -> Work:
    """The ``batch_bus_bytes`` of each batch, from page-locked memory of the host."""
    pinned = gpu.cupy().cuda.alloc_pinned_memory(BUFFER)
    return _copies(inputs, inputs["batch_bus_bytes"], lambda to, count: to.copy_from_host_async(pinned.ptr, count))


def _copies(inputs: Inputs, batch_bytes: float, copy: Any) -> Work:
    cupy = gpu.cupy()
    target, total = cupy.empty(BUFFER, cupy.uint8), int(batch_bytes * inputs["batches"])

    def work() -> Figures:
        for begin in range(0, total, BUFFER):
            copy(target.data, min(BUFFER, total - begin))
        return {"batches": inputs["batches"], "copied_bytes": total}

    return gpu.timed(work)


PEER = Peer(
    "GPU memory",
    ("cupy",),
    {
        "gpu-bulks": (
            Side("limit: bytes that must move, copied", within),
            Side("limit: 32 bytes an entry over the bus", over_bus),
        ),
        "gpu-rows": (Side("limit: rows copied over the bus in one piece", over_bus),),
    },
    is_limit=True,
)
