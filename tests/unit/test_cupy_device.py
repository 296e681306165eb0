"""What of the backend `cuda` stands on CuPy and can be looked at without a GPU."""

from __future__ import annotations

import warnings

import pytest

from spsample.backends.cuda.cupy_device import StreamAddress, cupy_stream


def test_a_stream_of_torch_is_taken_without_a_warning():
    """CuPy 14 deprecates `ExternalStream`; the tests make spsample's warnings errors."""
    cupy = pytest.importorskip("cupy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cupy_stream(cupy, 64).ptr == 64
        assert cupy_stream(cupy, 0).ptr == 0


def test_a_stream_speaks_the_protocol():
    assert StreamAddress(7).__cuda_stream__() == (0, 7)
