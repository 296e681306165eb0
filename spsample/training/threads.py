"""The number of threads that torch uses while a model is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from spsample.common.stage_threads import require_stage_threads


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
