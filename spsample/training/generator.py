"""Torch's global generator, which dropout draws from, as ranks use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import ClassVar

import torch

__all__ = ["SharedGenerator"]


class SharedGenerator:
    """Torch's global generator: there is one in a process, so that ranks which are threads use it one after the other.

    Examples
    --------
    >>> with SharedGenerator.seeded(3):
    ...     first = torch.rand(2)
    >>> with SharedGenerator.seeded(3):
    ...     print(torch.equal(torch.rand(2), first))
    True
    """

    _in_use: ClassVar[Lock] = Lock()

    @classmethod
    @contextmanager
    def seeded(cls, seed: int) -> Iterator[None]:
        """Let this thread alone draw numbers, which follow from the seed."""
        with cls._in_use:
            torch.manual_seed(seed)
            yield
