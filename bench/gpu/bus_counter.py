"""Bytes that a GPU receives over the bus, by the counter of its driver (NVML), which comes with every driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

RECEIVED = 198
"""The field of NVML that counts bytes received over PCIe (NVML_FI_DEV_PCIE_COUNT_RX_BYTES)."""
BITS = {1: 32, 2: 64, 3: 64}
"""By NVML's type of a value: how wide it is. It starts again at 0 beyond."""


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t: asked by `field`, answered in the others."""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("type", ctypes.c_uint),
        ("status", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    )


class BusCounter:
    """What one GPU has received since some time in the past; of all programs that use it."""

    def __init__(self, library: ctypes.CDLL, device: ctypes.c_void_p) -> None:
        self._library = library
        self._device = device

    @classmethod
    def of(cls, pci_bus_id: str, library: str = "libnvidia-ml.so.1") -> BusCounter | None:
        """That of the GPU at a place of the bus; None where its driver does not count."""
        try:
            nvml = ctypes.CDLL(library)
        except OSError:
            return None
        device = ctypes.c_void_p()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(device)):
            return None
        counter = cls(nvml, device)
        return counter if counter._read() else None

    def over(self, steps: Iterable[Callable[[], Any]]) -> int | None:
        """Bytes received while the steps run, each of which waits for its own work; None where a reading fails.

        A step may receive less than 4 GiB: some drivers count in 32 bits.
        """
        total, before = 0, self._read()
        for step in steps:
            step()
            after = self._read()
            if before is None or after is None:
                return None
            total += (after[0] - before[0]) % (1 << after[1])
            before = after
        return total

    def _read(self) -> tuple[int, int] | None:
        """The count, and its bits."""
        asked = FieldValue(field=RECEIVED)
        if self._library.nvmlDeviceGetFieldValues(self._device, 1, ctypes.byref(asked)) or asked.status:
            return None
        bits = BITS.get(asked.type)
        return None if bits is None else (asked.value % (1 << bits), bits)
