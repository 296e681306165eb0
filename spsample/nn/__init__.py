"""Layers on sampled minibatches. Needs torch."""

from __future__ import annotations

from contextlib import suppress as _suppress

from spsample.common.threads import compiled_core as _compiled_core
from spsample.errors import MissingDependencyError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(package="torch", needed_for="spsample.nn", extra="pyg") from error

with _suppress(ImportError):  # a broken core is reported where it is used
    _compiled_core()  # now, not in a thread's first step: a process that is forked meanwhile would wait for its import
