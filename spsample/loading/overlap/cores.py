"""How many processors a rank has, where several ranks of a machine share them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from spsample.comm.objects import all_gather_object

if TYPE_CHECKING:
    from spsample.comm import Communicator

__all__ = ["cores_of_rank", "share_of"]


def cores_of_rank(comm: Communicator) -> int:
    """Return the processors that this rank may use, divided by the ranks that may use them too; collective.

    Examples
    --------
    >>> from spsample.comm import LocalCommunicator
    >>> from spsample.common.threads import usable_cores
    >>> cores_of_rank(LocalCommunicator()) == usable_cores()
    True
    """
    mine = (socket.gethostname(), _usable())
    everyone = [mine] if comm.size == 1 else all_gather_object(comm, mine)
    return share_of(mine[1], [cores for host, cores in everyone if host == mine[0]])


def share_of(mine: Iterable[int], of_each: list[tuple[int, ...]]) -> int:
    """The share of some processors that one of several users has, at least 1.

    Examples
    --------
    >>> share_of([0, 1, 2, 3], [(0, 1, 2, 3), (0, 1, 2, 3)])
    2
    >>> share_of([0, 1], [(0, 1), (2, 3)])
    2
    """
    parts = sum(1 / max(sum(core in cores for cores in of_each), 1) for core in mine)
    return max(int(parts + 1e-9), 1)


def _usable() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))
