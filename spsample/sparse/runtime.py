"""Threads and kept memory of the compiled kernels; neither changes any result."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from spsample.backends import available_backends
from spsample.sparse.checks import require_int

MOST_THREADS = 4096


def set_num_threads(threads: int) -> None:
    """Let calls from this thread use up to so many threads in the compiled kernels.

    Without it OpenMP decides: the environment variable `OMP_NUM_THREADS`, read when the program starts, or else one
    thread per processor. Other threads of the program keep their own number. The `reference` backend is
    single-threaded: where the compiled core is missing this checks its argument and changes nothing. No sample depends
    on the number of threads.

    Raises
    ------
    DTypeError, InputError
        If it is not an integer from 1 to 4096.

    Examples
    --------
    >>> set_num_threads(2)
    """
    count = require_int("threads", threads, minimum=1, maximum=MOST_THREADS)
    core = _core()
    if core is not None:
        core.set_num_threads(count)


def clear_pool() -> None:
    """Give memory that the compiled kernels keep for their next results back to the system.

    Arrays in use are not touched. Where the compiled core is missing there is nothing to give back.

    Examples
    --------
    >>> clear_pool()
    """
    core = _core()
    if core is not None:
        core.clear_pool()


def _core() -> Any:
    """The compiled core, or None."""
    return import_module("spsample._core") if "cpu" in available_backends() else None
