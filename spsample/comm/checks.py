"""Checks that every communicator makes of its arguments, before anything is sent."""

from __future__ import annotations

from spsample.backends.protocol import Int64Array
from spsample.comm.communicator import Array, Communicator
from spsample.errors import InputError


def check_blocks(comm: Communicator, send: Array) -> None:
    """Refuse what has not one block per rank."""
    if send.ndim < 1 or len(send) != comm.size:
        raise InputError(
            argument="send", given=f"shape {send.shape}", expected=f"one block per rank: ({comm.size}, ...)"
        )


def check_exchange(comm: Communicator, send: Array, send_counts: Int64Array, recv_counts: Int64Array) -> None:
    """Refuse counts that do not fit the ranks or the array."""
    for name, counts in (("send_counts", send_counts), ("recv_counts", recv_counts)):
        if counts.shape != (comm.size,) or counts.min() < 0:
            expected = f"{comm.size} numbers of at least 0, one per rank"
            raise InputError(argument=name, given=str(counts.tolist()), expected=expected)
    if int(send_counts.sum()) != len(send):
        given = f"{len(send)} rows for counts of {int(send_counts.sum())}"
        raise InputError(argument="send", given=given, expected="as many rows as are to be sent")
    if int(send_counts[comm.rank]) != int(recv_counts[comm.rank]):
        given = f"{int(recv_counts[comm.rank])} rows from this rank, which sends itself {int(send_counts[comm.rank])}"
        raise InputError(argument="recv_counts", given=given, expected="the same number")


def check_gather(comm: Communicator, send: Array, recv_counts: Int64Array) -> None:
    """Refuse counts that do not fit the ranks or this rank's rows."""
    if recv_counts.shape != (comm.size,) or recv_counts.min() < 0:
        expected = f"{comm.size} numbers of at least 0, one per rank"
        raise InputError(argument="recv_counts", given=str(recv_counts.tolist()), expected=expected)
    if int(recv_counts[comm.rank]) != len(send):
        given = f"{len(send)} rows for a count of {int(recv_counts[comm.rank])} on rank {comm.rank}"
        raise InputError(argument="send", given=given, expected="as many rows as are to be sent")


def check_root(comm: Communicator, root: int) -> None:
    """Refuse what is no rank."""
    if not 0 <= root < comm.size:
        raise InputError(argument="root", given=str(root), expected=f"a rank in [0, {comm.size})")


__all__ = ["check_blocks", "check_exchange", "check_gather", "check_root"]
