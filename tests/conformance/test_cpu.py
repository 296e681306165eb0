"""The compiled backend keeps the contract of a backend."""

from __future__ import annotations

import pytest
from backend_contract import BackendContract

from spsample.backends import get_backend

pytestmark = pytest.mark.sanitize


class TestCpu(BackendContract):
    @pytest.fixture
    def backend(self):
        pytest.importorskip("spsample._core", reason="the compiled core is not built")
        return get_backend("cpu")
