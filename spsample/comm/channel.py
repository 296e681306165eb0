"""Exchanges that carry a status word: where one rank fails, all of them raise, in the same call.

A *collective call* is a block of work that every rank runs (`collective`); its exchanges go over a `Channel`.
Each exchange begins with the header of counts that an all-to-allv needs anyway, and the first word of the header says
what the sender does and whether it has failed (`spsample.comm.headers`). A rank that fails between two exchanges joins
the next header with that word set and then goes to the end of the call; so do all ranks that read it. At the end all
ranks report to each other whether they failed, and all raise. Headers are counted under the phase "status", whatever
the exchange is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm.buffers import as_bytes, contiguous, on_device, row_bytes
from spsample.comm.communicator import Array, Communicator, check_exchange
from spsample.comm.headers import HEADER_WORDS, PeerFailedError, exchange_headers, finish_call, is_raised_everywhere
from spsample.errors import CommunicationError, InputError

MAX_TOGETHER = 1 << 20
"""Bytes: where no rank sends more, the arrays of an exchange travel as one message for each rank."""

MAX_ARRAYS = HEADER_WORDS - 1
"""Arrays of an exchange, a gather or a broadcast, at most."""

_NOTHING: AbstractContextManager[None] = nullcontext()
_APART = 1 << 62
"""Flag in the first count of a header: the sender has more bytes, or arrays on a device."""


class Sent(NamedTuple):
    """Rows for each rank of a group: `counts[q]` rows (along the first axis) of `rows` go to rank q, in order."""

    rows: Array
    counts: Int64Array


class Received(NamedTuple):
    """Rows from each rank of a group: `counts[q]` rows came from rank q, in order."""

    rows: Array
    counts: Int64Array


class Channel:
    """All-to-allv within `group`, with headers over `scope`, whose ranks fail together.

    Parameters
    ----------
    scope : Communicator
        Ranks that learn of a failure by the next header. Channels of one call share their scope.
    group : Communicator, optional
        Ranks that exchange, all of them in the scope; None: the scope itself.
    members : sequence of int, optional
        Rank in the scope of each rank of the group.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> def body(comm):
    ...     rows = Sent(np.full(comm.size, comm.rank), np.ones(comm.size, np.int64))
    ...     return Channel(comm).exchange([rows], phase="example")[0].rows.tolist()
    >>> run_threads(2, body)
    [[0, 1], [0, 1]]
    """

    def __init__(
        self, scope: Communicator, group: Communicator | None = None, members: Sequence[int] | None = None
    ) -> None:
        self.scope = scope
        self.group = scope if group is None else group
        self._members = np.arange(scope.size) if members is None else np.asarray(members)

    def exchange(self, sends: Sequence[Sent], *, phase: str) -> list[Received]:
        """Send rows of up to seven arrays to each rank of the group, and return those that came from each.

        They travel together, as one message for each rank, where no rank of the group has more than `MAX_TOGETHER`
        bytes to send; else each array by itself, which spares copies.
        """
        _require_few("sends", sends)
        for sent in sends:
            check_exchange(self.group, sent.rows, sent.counts, sent.counts)
        rows = [contiguous(sent.rows) for sent in sends]
        counts = np.array([sent.counts for sent in sends], np.int64).reshape(len(sends), self.group.size).T
        call = f"exchange in phase {phase!r}"
        expected, apart = self._agreed_counts(counts, rows, call)
        with self._no_way_back(call):
            if not apart:
                return self._moved_together(rows, counts, expected, phase)
            received = []
            for array, send_counts, recv_counts in zip(rows, counts.T.copy(), expected.T.copy(), strict=True):
                moved = self.group.all_to_all_v(array, send_counts, recv_counts, phase=phase)
                received.append(Received(moved, recv_counts))
            return received

    def _agreed_counts(self, counts: Int64Array, rows: Sequence[Array], call: str) -> tuple[Int64Array, bool]:
        """Return the counts that the ranks have for this one, and whether any of them sends its arrays one by one."""
        if len(rows) < 2:
            return self._header(counts, call), True
        apart = any(map(on_device, rows)) or sum(array.nbytes for array in rows) > MAX_TOGETHER
        flagged = counts.astype(np.int64, copy=True)
        flagged[:, 0] |= _APART * apart
        expected = self._header(flagged, call)
        any_apart = bool((expected[:, 0] & _APART).any())
        expected[:, 0] &= ~_APART
        return expected, any_apart

    def _moved_together(
        self, rows: Sequence[Array], counts: Int64Array, expected: Int64Array, phase: str
    ) -> list[Received]:
        """Send one message to each rank, with its rows of all arrays, one array after the other."""
        widths = np.array([row_bytes(array) for array in rows], np.int64)
        sizes, recv_sizes = counts * widths, expected * widths
        of_arrays = [np.split(as_bytes(array), np.cumsum(size)[:-1]) for array, size in zip(rows, sizes.T, strict=True)]
        send = np.concatenate([piece for of_rank in zip(*of_arrays, strict=True) for piece in of_rank])
        moved = self.group.all_to_all_v(send, sizes.sum(axis=1), recv_sizes.sum(axis=1), phase=phase)
        pieces = np.split(moved, np.cumsum(recv_sizes.ravel())[:-1].tolist())
        received = []
        for i, array in enumerate(rows):
            came = np.concatenate(pieces[i :: len(rows)]).view(array.dtype)
            recv_counts = expected[:, i].copy()
            received.append(Received(came.reshape(int(recv_counts.sum()), *array.shape[1:]), recv_counts))
        return received

    @contextmanager
    def _no_way_back(self, call: str) -> Iterator[None]:
        """Turn errors of the block into `CommunicationError`: after the header others cannot learn of them any more."""
        try:
            with self.group.agreed(call):
                yield
        except CommunicationError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise CommunicationError(
                f"rank {self.scope.rank} of a group of {self.scope.size} failed in the middle of its {call}, which the "
                f"others wait for: {reason}"
            ) from error

    def gather(self, arrays: Sequence[Array], *, phase: str) -> list[Received]:
        """The rows of up to seven arrays of every rank of the group, one rank after the other."""
        _require_few("arrays", arrays)
        counts = np.array([[len(rows) for rows in arrays]] * self.group.size, np.int64)
        call = f"gather in phase {phase!r}"
        expected = self._header(counts, call)
        received = []
        with self._no_way_back(call):
            for i, rows in enumerate(arrays):
                recv_counts = expected[:, i].copy()
                gathered = self.group.all_gather_v(np.ascontiguousarray(rows), recv_counts, phase=phase)
                received.append(Received(gathered, recv_counts))
        return received

    def broadcast(self, arrays: Sequence[Array], root: int | None, *, phase: str) -> list[Array]:
        """Up to seven arrays of one rank of the group, on all of its ranks.

        Others give arrays of the same types and row shapes, whose contents do not matter. Where `root` is None, on all
        ranks of the group, nothing is sent and the arrays come back without rows: other groups of the scope may have
        something to send, and wait for the header.
        """
        _require_few("arrays", arrays)
        mine = root == self.group.rank
        counts = np.array([[len(rows) if mine else 0 for rows in arrays]] * self.group.size, np.int64)
        call = f"broadcast in phase {phase!r}"
        expected = self._header(counts, call)
        if root is None:
            return [rows[:0] for rows in arrays]
        received = []
        with self._no_way_back(call):
            for rows, count in zip(arrays, expected[root].tolist(), strict=True):
                buffer = np.ascontiguousarray(rows) if mine else np.empty((count, *rows.shape[1:]), rows.dtype)
                received.append(self.group.broadcast(buffer, root, phase=phase))
        return received

    def reduce_max(self, value: int) -> int:
        """The largest of the scope's values: for loops that all ranks must leave together."""
        return int(
            exchange_headers(self.scope, np.full((self.scope.size, 1), value, np.int64), "reduce_max")[:, 0].max()
        )

    def any_reduce(self, *here: bool) -> list[bool]:
        """Return for each of up to seven values whether it is true on any rank of the scope."""
        mine = np.tile(np.array(here, np.int64), (self.scope.size, 1))
        return [bool(flags.any()) for flags in exchange_headers(self.scope, mine, "any_reduce").T]

    def settle(self, call: str) -> None:
        """The last header of a call: learn of ranks that failed after the last exchange."""
        exchange_headers(self.scope, np.zeros((self.scope.size, 0), np.int64), call)

    def fail(self) -> None:
        """Join the header that the others wait in, or will, and report that this rank has failed."""
        exchange_headers(self.scope, np.zeros((self.scope.size, 0), np.int64), "a failure", failed=True)

    def _header(self, counts: Int64Array, call: str) -> Int64Array:
        """Counts that the ranks of the group have for this one, from those that it has for them."""
        if self.group is self.scope:
            return exchange_headers(self.scope, counts, call)
        everyone = np.zeros((self.scope.size, counts.shape[1]), np.int64)
        everyone[self._members] = counts
        return exchange_headers(self.scope, everyone, call)[self._members]


def _require_few(argument: str, arrays: Sequence[Any]) -> None:
    if len(arrays) > MAX_ARRAYS:
        expected = f"at most {MAX_ARRAYS}, whose counts a header holds"
        raise InputError(argument=argument, given=f"{len(arrays)} arrays", expected=expected)


def collective(
    world: Communicator, *channels: Channel, call: str = "a collective call"
) -> AbstractContextManager[None]:
    """Run a block that all ranks of `world` run, so that all of them raise where one does.

    Parameters
    ----------
    world : Communicator
    channels : Channel
        Those that the block exchanges over; all of one scope.
    call : str
        Name of the block, for the error where other ranks are in another one.

    Raises
    ------
    SpSampleError
        The error of a rank, of the same type where it is spsample's own, naming the rank. On that rank the original is
        its cause.
    CommunicationError
        If a rank is lost: the communicator is then unusable, and nothing is agreed upon any more. Or if ranks are in
        different calls, on all of them.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> from spsample.errors import InputError
    >>> def body(comm):
    ...     with collective(comm):
    ...         if comm.rank == 1:
    ...             raise InputError(argument="seeds", given="7", expected="less")
    >>> run_threads(2, body)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: seeds: got 7 (on rank 1); expected less
    """
    if world.size == 1 and not channels:
        return _NOTHING  # what a rank that is alone raises is left as it is
    return _collective(world, channels, call)


@contextmanager
def _collective(world: Communicator, channels: Sequence[Channel], call: str) -> Iterator[None]:
    failure: BaseException | None = None
    peer_failed = False
    try:
        yield
        for channel in channels[:1]:  # all of them share their scope
            channel.settle(call)
    except CommunicationError:
        raise
    except PeerFailedError:
        peer_failed = True
    except Exception as error:
        if is_raised_everywhere(error, world):
            raise
        failure = error
        for channel in channels[:1]:
            channel.fail()
    finish_call(world, call, failure)
    if peer_failed:
        raise CommunicationError(
            f"rank {world.rank} of a group of {world.size}: another rank said that it failed, and none has an error to "
            "tell: the ranks are out of step"
        )
