"""What all ranks must give alike before a collective call goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm.communicator import Communicator
from spsample.comm.headers import exchange_numbers
from spsample.common.contents import contents_of
from spsample.errors import InputError


def require_same(comm: Communicator, /, **arguments: Any) -> None:
    """Refuse a collective call whose arguments differ between ranks; they are compared by hash.

    Raises
    ------
    InputError
        On every rank, naming the first argument that differs and the ranks that gave another one than most.
    """
    for argument, where in differing(comm, **arguments).items():
        expected = "the same on every rank: this call is collective"
        raise InputError(argument=argument, given=f"something else on {where}", expected=expected)


def differing(comm: Communicator, /, **values: Any) -> dict[str, str]:
    """Name the values that differ between ranks, and where they do: "rank 2 than on rank 0"; collective.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> run_threads(3, lambda comm: differing(comm, p=1, q=comm.rank > 0, r=comm.rank))[0]
    {'q': 'rank 0 than on rank 1', 'r': 'ranks 1, 2 than on rank 0'}
    """
    if comm.size == 1:
        return {}
    digests = np.array([contents_of(value) for value in values.values()], np.int64)
    call = f"comparison of {', '.join(values)}"
    whole = contents_of(digests)
    if (exchange_numbers(comm, np.full((comm.size, 1), whole), call) == whole).all():
        return {}
    with comm.agreed(call):
        everyone = comm.all_gather(digests, phase="status")
    return {
        name: _where(comm, everyone[:, i]) for i, name in enumerate(values) if (everyone[:, i] != everyone[0, i]).any()
    }


def _where(comm: Communicator, given: Int64Array) -> str:
    """Which ranks gave something else than most of them; of as many, than the first ones."""
    _, first, counts = np.unique(given, return_index=True, return_counts=True)
    usual = int(min(first[counts == counts.max()]))
    return f"{comm.named(np.flatnonzero(given != given[usual]).tolist())} than on {comm.named([usual])}"


__all__ = ["differing", "require_same"]
