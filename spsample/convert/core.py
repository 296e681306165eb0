"""The compiled kernels, which every conversion needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from spsample.backends import available_backends
from spsample.errors import BackendError

__all__ = ["core"]


def core() -> Any:
    """Return the compiled core.

    Raises
    ------
    BackendError
        If it is missing.
    """
    if "cpu" not in available_backends():
        raise BackendError("conversions need the compiled core of spsample, which is missing here: install the package")
    return import_module("spsample._core")
