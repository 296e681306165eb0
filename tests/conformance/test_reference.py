"""The reference backend keeps the contract of a backend."""

from __future__ import annotations

import pytest
from backend_contract import BackendContract

from spsample.backends import get_backend


class TestReference(BackendContract):
    @pytest.fixture
    def backend(self):
        return get_backend("reference")
