"""Headers: a few numbers from each rank to each other one, with a word that says what call the sender is in.

Ranks that are in different calls would read each other's arrays as what they are not. So whatever ranks do together
begins with a header, one all-to-all of 64 bytes for each pair of ranks, whose first word holds a hash of the call's
description and whether the sender has failed. Headers have one form for all calls: wherever two ranks meet, both read
which call the other one is in. Where calls differ, all ranks see it in one header, exchange descriptions and raise.
"""

from __future__ import annotations

import pickle
from hashlib import sha256

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm.communicator import Array, Communicator
from spsample.errors import CommunicationError, RankError, on_rank, raised_by

HEADER_WORDS = 8
"""Words of a header: the call with the status, and up to seven numbers."""

_STATUS = "status"
_FAILED, _REPORTS = 1, 2
"""Flags in the first word. The sender is in a channel and goes to the end of its call; or it is there, and reports an
error, whose bytes are the next word."""
_STATUS_BITS = 2
_HASH_BYTES = 7
_DESCRIPTION_BYTES = 256


class PeerFailedError(Exception):
    """Another rank has failed in what all do together; its error comes at the end of the call."""


def exchange_headers(comm: Communicator, numbers: Int64Array, call: str, *, failed: bool = False) -> Int64Array:
    """Send row q of `numbers` (size, up to 7) to rank q; return those that came, a row from each rank.

    Parameters
    ----------
    comm : Communicator
    numbers : int64 array
    call : str
        The call of this rank, the same on all ranks: "exchange in phase 'rows'".
    failed : bool
        Report that this rank has failed, whichever calls the others are in.

    Raises
    ------
    PeerFailedError
        If another rank has failed; not on those that report so themselves.
    SpSampleError
        The error that a rank reports at a `finish_call`.
    CommunicationError
        If the ranks are in different calls; on all of them, naming each rank's.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> numbers = np.array([[3], [4]])
    >>> run_threads(2, lambda comm: exchange_headers(comm, numbers + comm.rank, "an example")[:, 0].tolist())
    [[3, 4], [4, 5]]
    >>> run_threads(2, lambda comm: exchange_headers(comm, np.zeros((2, 0), np.int64), "ab"[comm.rank]))
    Traceback (most recent call last):
    ...
    spsample.errors.CommunicationError: rank 0 of a group of 2: the ranks are in different calls: rank 0 in a; rank 1 in
    b. Every rank has to make the same calls in the same order
    """
    received = _exchanged(comm, numbers, call, _FAILED if failed else 0)
    if failed or _are_alike(received):
        return received[:, 1 : 1 + numbers.shape[1]]
    if (received[:, 0] & _FAILED).any():
        raise PeerFailedError
    _raise_what_is_reported(comm, received, call)
    raise _out_of_step(comm, call)


def exchange_numbers(comm: Communicator, numbers: Int64Array, call: str) -> Int64Array:
    """`exchange_headers`, in a call that knows of no failures.

    A rank that reports one is in another call, which its next header says.

    Raises
    ------
    CommunicationError
        If the ranks are in different calls; on all of them, naming each rank's.
    """
    while True:
        try:
            return exchange_headers(comm, numbers, call)
        except PeerFailedError:
            continue


def finish_call(comm: Communicator, call: str, failure: BaseException | None = None) -> None:
    """End a call: report what this rank failed with, and raise the error of the first rank that failed on all of them.

    Ranks that are not at the end of this call but in another one, within it or after it, raise the error, too. Once it
    went over a communicator nobody has to report it again over that one: see `is_raised_everywhere`.

    Raises
    ------
    SpSampleError
        The error of a rank.
    CommunicationError
        If the ranks are in different calls, and none has failed; on all of them, naming each rank's.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> failures = [ZeroDivisionError("by zero"), None]
    >>> run_threads(2, lambda comm: finish_call(comm, "an example", failures[comm.rank]))
    Traceback (most recent call last):
    ...
    spsample.errors.RankError: rank 0 failed: ZeroDivisionError: by zero
    """
    report = b"" if failure is None else pickled_error(failure, comm.rank)
    sizes, status = np.full((comm.size, 1), len(report)), _REPORTS if report else 0
    received = _exchanged(comm, sizes, f"the end of {call}", status)
    while not _are_alike(received) and (received[:, 0] & _FAILED).any():  # a rank is on its way to the end
        received = _exchanged(comm, sizes, f"the end of {call}", status)
    if report or not _are_alike(received):
        _raise_what_is_reported(comm, received, call, report, failure)
        raise _out_of_step(comm, f"the end of {call}")


def is_raised_everywhere(error: BaseException, comm: Communicator) -> bool:
    """Return whether all ranks of this communicator raise the error, since it went over it."""
    return getattr(error, "raised_over", None) == id(comm.carrier)


def describe(name: str, phase: str, array: Array, rows_only: bool) -> str:
    """Describe a call of a communicator: its name, phase and array.

    Parameters
    ----------
    name, phase : str
    array : array
    rows_only : bool
        True where ranks may have different numbers of rows along the first axis.

    Examples
    --------
    >>> describe("all_gather", "rows", np.zeros((2, 3), np.int8), rows_only=False)
    "all_gather in phase 'rows' of int8 (2, 3)"
    >>> describe("all_gather_v", "rows", np.zeros((2, 3), np.int8), rows_only=True)
    "all_gather_v in phase 'rows' of rows of int8 (3,)"
    """
    shape = array.shape[1:] if rows_only else array.shape
    return f"{name} in phase {phase!r} of {'rows of ' if rows_only else ''}{array.dtype} {shape}"


def _exchanged(comm: Communicator, numbers: Int64Array, call: str, status: int) -> Int64Array:
    """The header of each rank."""
    header = np.zeros((comm.size, HEADER_WORDS), np.int64)
    word = int.from_bytes(sha256(call.encode()).digest()[:_HASH_BYTES], "little") << _STATUS_BITS
    header[:, 0] = word | status
    header[:, 1 : 1 + numbers.shape[1]] = numbers
    with comm.agreed(call):
        return comm.all_to_all(header, phase=_STATUS)


def _are_alike(received: Int64Array) -> bool:
    """Return whether all first words are the same: that of this rank, or that of ranks which all report an error."""
    return len(set(received[:, 0].tolist())) == 1


def _raise_what_is_reported(
    comm: Communicator, received: Int64Array, call: str, report: bytes = b"", failure: BaseException | None = None
) -> None:
    """Gather the errors that ranks at the end of a call report, if any; raise that of the first rank."""
    sizes = np.where(received[:, 0] & _REPORTS, received[:, 1], 0)
    if not sizes.any():
        return
    with comm.agreed(f"errors in {call}"):
        everyone = comm.all_gather_v(np.frombuffer(report, np.uint8), sizes, phase=_STATUS)
    ends = np.cumsum(sizes)
    errors = {
        rank: pickle.loads(everyone[end - size : end].tobytes())
        for rank, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True))
        if size
    }
    rank, first = min(errors.items())
    everywhere = len(errors) == comm.size and len({str(error) for error in errors.values()}) == 1
    error = raised_by(first if everywhere else on_rank(first, rank), rank)
    error.raised_over = id(comm.carrier)  # type: ignore[attr-defined]
    raise error from failure


def pickled_error(error: BaseException, rank: int) -> bytes:
    """Return the error as others can read it; of one that cannot be pickled its text."""
    try:
        report = pickle.dumps(error)
        pickle.loads(report)
    except Exception:
        return pickle.dumps(RankError(rank, f"{type(error).__name__}: {error}"))
    return report


def _out_of_step(comm: Communicator, call: str) -> CommunicationError:
    """Exchange descriptions of calls, once all ranks have seen that these differ, and return the error that says so."""
    report = np.frombuffer(call.encode()[:_DESCRIPTION_BYTES].ljust(_DESCRIPTION_BYTES), np.uint8)
    with comm.agreed(call):
        everyone = comm.all_gather(report, phase=_STATUS)
    ranks_in: dict[str, list[int]] = {}
    for rank, text in enumerate(everyone):
        ranks_in.setdefault(text.tobytes().decode(errors="replace").strip(), []).append(rank)
    where = "; ".join(f"{comm.named(ranks)} in {text}" for text, ranks in ranks_in.items())
    return CommunicationError(
        f"{comm.named([comm.rank])} of a group of {comm.size}: the ranks are in different calls: {where}. "
        "Every rank has to make the same calls in the same order"
    )
