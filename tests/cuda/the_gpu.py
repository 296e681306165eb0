"""The GPU of the tests, or why there is none."""

from __future__ import annotations

from functools import cache

from spsample.backends.cuda.cupy_device import CupyDevice
from spsample.errors import SpSampleError


@cache
def the_gpu() -> CupyDevice | str:
    """The GPU that is current, or what is said where tests are skipped for want of it."""
    try:
        return CupyDevice()
    except SpSampleError as error:
        return f"no GPU: {str(error).splitlines()[0]}"
