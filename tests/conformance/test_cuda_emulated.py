"""The CUDA kernels keep the contract of a backend: compiled for the host and run thread by thread, without a GPU."""

from __future__ import annotations

import pytest
from backend_contract import BackendContract
from emulated_device import EmulatedDevice
from on_host import OnHost

from spsample.backends.cuda.backend import CudaKernels

pytestmark = pytest.mark.needs("c++")


class TestCudaEmulated(BackendContract):
    @pytest.fixture
    def backend(self):
        return OnHost(CudaKernels(EmulatedDevice()))
