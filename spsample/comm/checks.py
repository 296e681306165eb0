"""Checks that every communicator makes of its arguments, before anything is sent."""

from __future__ import annotations

from typing import Any, get_args

from spsample.backends.protocol import Int64Array
from spsample.comm.buffers import require_plain
from spsample.comm.communicator import Array, Communicator, Reduction
from spsample.common.checks import require_array, require_choice, require_int, short
from spsample.common.threads import MAX_THREADS
from spsample.errors import DTypeError, InputError


def check_blocks(comm: Communicator, send: Array) -> None:
    """Refuse what has not one block per rank."""
    if send.ndim < 1 or len(send) != comm.size:
        raise InputError(
            argument="send", given=f"shape {send.shape}", expected=f"one block per rank: ({comm.size}, ...)"
        )


def check_exchange(comm: Communicator, send: Array, send_counts: Int64Array, recv_counts: Int64Array) -> None:
    """Refuse counts that do not fit the ranks or the array, and arrays of Python objects."""
    require_plain(send)
    for name, counts in (("send_counts", send_counts), ("recv_counts", recv_counts)):
        _require_counts(comm, name, counts)
    if int(send_counts.sum()) != len(send):
        given = f"{len(send)} rows for counts of {int(send_counts.sum())}"
        raise InputError(argument="send", given=given, expected="as many rows as are to be sent")
    if int(send_counts[comm.rank]) != int(recv_counts[comm.rank]):
        given = f"{int(recv_counts[comm.rank])} rows from this rank, which sends itself {int(send_counts[comm.rank])}"
        raise InputError(argument="recv_counts", given=given, expected="the same number")


def check_gather(comm: Communicator, send: Array, recv_counts: Int64Array) -> None:
    """Refuse counts that do not fit the ranks or this rank's rows."""
    _require_counts(comm, "recv_counts", recv_counts)
    if int(recv_counts[comm.rank]) != len(send):
        given = f"{len(send)} rows for a count of {int(recv_counts[comm.rank])} on rank {comm.rank}"
        raise InputError(argument="send", given=given, expected="as many rows as are to be sent")


def _require_counts(comm: Communicator, name: str, counts: Int64Array) -> None:
    require_array(name, counts, ("i", "u"), "integers")
    if counts.shape != (comm.size,) or counts.min() < 0:
        expected = f"{comm.size} numbers of at least 0, one per rank"
        raise InputError(argument=name, given=str(counts.tolist()), expected=expected)


def check_reduction(op: str) -> None:
    """Refuse what is no reduction."""
    require_choice("op", op, get_args(Reduction))


def check_root(comm: Communicator, root: int) -> None:
    """Refuse what is no rank."""
    if require_int("root", root) not in range(comm.size):
        raise InputError(argument="root", given=str(root), expected=f"a rank in [0, {comm.size})")


def check_threads(size: Any, body: Any) -> None:
    """Refuse what is no number of threads, and what is no function for them."""
    require_int("size", size, minimum=1, maximum=MAX_THREADS)
    if not callable(body):
        raise DTypeError(argument="body", given=short(body), expected="a function of a communicator")
