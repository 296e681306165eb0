"""The backend `cuda` on the emulated device, for tests of the whole library."""

from __future__ import annotations

import pytest
from emulated_device import EmulatedDevice

from spsample.backends import registry
from spsample.backends.cuda.backend import CudaKernels

needs_compiler = pytest.mark.needs("c++")


class EmulatedBackend(CudaKernels):
    """What `get_backend("cuda")` gives in a test with the fixture `emulated`."""

    def __init__(self):
        super().__init__(EmulatedDevice())


@pytest.fixture
def emulated(monkeypatch):
    """The device; `backend="cuda"` means it."""
    monkeypatch.setitem(registry._CLASSES, "cuda", ("emulated_backend", "EmulatedBackend"))
    registry._load.cache_clear()
    device = registry.get_backend("cuda").device
    yield device
    registry._load.cache_clear()
    device.check()
