"""The contract of a backend, watched by ThreadSanitizer: every operation, on what is small and special."""

from __future__ import annotations

import pytest
from backend_contract import BackendContract
from emulated_device import EmulatedDevice
from on_host import OnHost

from spsample.backends.cuda.backend import CudaKernels


class TestContract(BackendContract):
    @pytest.fixture
    def backend(self):
        return OnHost(CudaKernels(EmulatedDevice()))
