"""Settings of the whole process around a run: torch's generator and threads, and memory that malloc keeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock
from typing import Any, ClassVar

import torch

from spsample.common.locks import renewed
from spsample.common.stage_threads import require_stage_threads
from spsample.common.threads import compiled_core


class RunGenerator:
    """Torch's global generator, whose numbers are a run's own: what draws before, between or after changes none.

    There is one generator in a process, so that ranks which are threads use it one after the other.

    Parameters
    ----------
    random_seed
        Of the run.
    device
        Where the model is.

    Attributes
    ----------
    kept : Tensor or None
        State of torch's generator from which the next use goes on; None: from the seed.

    Examples
    --------
    >>> generator = RunGenerator(3, torch.device("cpu"))
    >>> with generator.in_use():
    ...     first = torch.rand(2)
    >>> with generator.in_use():
    ...     print(torch.equal(torch.rand(2), first))
    True
    """

    _lock: ClassVar[Lock] = renewed(Lock())

    def __init__(self, random_seed: int, device: torch.device) -> None:
        self._random_seed = random_seed
        self._devices = [device] if device.type == "cuda" else []
        self.kept: torch.Tensor | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the numbers follow from the run's seed, or go on from a state that was kept; set it back afterwards."""
        with torch.random.fork_rng(devices=self._devices):
            if self.kept is None:
                torch.manual_seed(self._random_seed)
            else:
                torch.random.set_rng_state(self.kept)
            self.kept = None
            yield

    @classmethod
    @contextmanager
    def of_batch(cls, random_seed: int, epoch: int, batch_id: int) -> Iterator[None]:
        """Let this thread alone draw numbers, which follow from the batch."""
        with cls._lock:
            cls.follow_batch(random_seed, epoch, batch_id)
            yield

    @staticmethod
    def follow_batch(random_seed: int, epoch: int, batch_id: int) -> None:
        """Let the numbers follow from the batch.

        Ranks that are threads draw from one generator: where each has to draw numbers of its own, see `of_batch`.
        """
        words = b"".join(number.to_bytes(8, "little") for number in (random_seed, epoch, batch_id))
        torch.manual_seed(int.from_bytes(sha256(words).digest()[:7], "little"))

    @property
    def state(self) -> torch.Tensor:
        """The state that was kept; in use, that of torch's generator now."""
        return torch.random.get_rng_state() if self.kept is None else self.kept


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
