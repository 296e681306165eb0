"""Torch's global generator, as a training run uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock
from typing import ClassVar, TypeVar

import torch

from spsample.common.locks import renewed

T = TypeVar("T")


class RunGenerator:
    """Torch's global generator, whose numbers are a run's own: what draws before, between or after changes none.

    There is one generator in a process, so that ranks which are threads use it one after the other.

    Parameters
    ----------
    random_seed
        Of the run.
    device
        Where the model is.

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
        self._state: torch.Tensor | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the numbers follow from the run's seed, or go on from a state that was kept; set it back afterwards."""
        with torch.random.fork_rng(devices=self._devices):
            if self._state is None:
                torch.manual_seed(self._random_seed)
            else:
                torch.random.set_rng_state(self._state)
            self._state = None
            yield

    def drawing(self, build: Callable[[], T]) -> Callable[[], T]:
        """Return a function that builds with the run's numbers."""

        def built() -> T:
            with self.in_use():
                return build()

        return built

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

    def keep(self) -> None:
        """Keep where the numbers are, within `in_use`; the next use goes on from there."""
        self._state = torch.random.get_rng_state()

    @property
    def state(self) -> torch.Tensor:
        """The state that was kept; in use, that of torch's generator now."""
        return torch.random.get_rng_state() if self._state is None else self._state

    @state.setter
    def state(self, state: torch.Tensor | None) -> None:
        self._state = state
