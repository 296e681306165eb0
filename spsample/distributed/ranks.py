"""The ranks that something lies on, and blocks of work in which they fail together."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from spsample.comm import Communicator, LocalCommunicator, together


def comm_of(shared: Any) -> Communicator:
    """The ranks of a distributed graph or of partitioned features; of anything else, the one that has it.

    Examples
    --------
    >>> comm_of("a local graph").size
    1
    """
    comm = getattr(shared, "comm", None)
    return comm if isinstance(comm, Communicator) else LocalCommunicator()


def failing_together(comm: Communicator) -> AbstractContextManager[None]:
    """`spsample.comm.together`, where there are others; what one rank alone raises is left as it is."""
    return together(comm) if comm.size > 1 else nullcontext()


__all__ = ["comm_of", "failing_together"]
