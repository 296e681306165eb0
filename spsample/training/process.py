"""Settings of the process around training: memory that malloc keeps, and torch's threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from spsample.common.stage_threads import require_stage_threads
from spsample.common.threads import compiled_core

_OWN_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
"""Environment variables that set malloc's thresholds: these are left as they are then."""


@contextmanager
def keep_memory() -> Iterator[None]:
    """Around training on the processor: memory that a step frees is kept for the next one.

    Activations and gradients are large blocks. glibc's malloc takes each from the system and gives it back when it is
    freed, so that every step has all their pages zeroed anew. Within this context freed blocks of up to 1 GiB are kept
    (of up to 32 MiB with an old glibc). Afterwards what is free goes back to the system, and later blocks of 32 MiB and
    more do, as they do once glibc has adjusted itself. It counts for the whole process: contexts may be nested and may
    overlap in several threads, and the last one that ends gives memory back. `Trainer.fit` is within it.

    Blocks of one size are laid side by side, up to eight of them, before glibc uses the first again: a loop that
    allocates one large block of the same size in each step, and none in between, needs as much more memory.

    Nothing is done with another C library, without the compiled core, or where the environment sets malloc's
    thresholds itself (``MALLOC_MMAP_THRESHOLD_``, ``MALLOC_TRIM_THRESHOLD_``, ``MALLOC_TOP_PAD_``,
    ``GLIBC_TUNABLES``). Threads other than the main one keep what fits the 64 MiB of an arena.

    Examples
    --------
    >>> with keep_memory():
    ...     pass  # steps of a loop of one's own
    """
    core = compiled_core()
    if core is None or any(name in os.environ for name in _OWN_SETTINGS):
        yield
        return
    core.keep_freed()
    try:
        yield
    finally:
        core.release_freed()


@contextmanager
def torch_threads(stage_threads: Any) -> Iterator[None]:
    """Around training: torch uses the number of threads that is given for it, if any, and afterwards what it had.

    Losses can depend on that number in their last bits.

    Examples
    --------
    >>> before = torch.get_num_threads()
    >>> with torch_threads("1,1,1"):
    ...     print(torch.get_num_threads())
    1
    >>> torch.get_num_threads() == before
    True
    """
    threads = None if stage_threads is None else require_stage_threads("stage_threads", stage_threads).training
    if threads is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
