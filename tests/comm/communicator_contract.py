"""What every communicator does: `CommunicatorContract`, whose cases run on all ranks of a communicator.

A case is a method `case_*` that takes the rank's communicator. `test_threads.py` runs each of them by pytest with ranks
as threads; `over_processes.py` runs all of them in one job of MPI or torch.distributed.
"""

from __future__ import annotations

import os
import re
import threading
import time

import numpy as np
import pytest

from spsample.comm import Channel, Communicator, Recorder, Sent, collective
from spsample.comm.channel import MAX_TOGETHER
from spsample.errors import CommunicationError, DTypeError, InputError, RankError

DTYPES = [
    np.dtype(name) for name in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c16", "S5")
]


def rows(sender: int, receiver: int, count: int, dtype: np.dtype, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Rows that tell who sent them to whom."""
    size = count * int(np.prod(shape, dtype=int))
    return ((np.arange(size) + 7 * sender + 13 * receiver) % 101).astype(dtype).reshape(count, *shape)


def uneven(sender: int, receiver: int) -> int:
    """Of rows: many zeros, and different each way."""
    return max(0, (5 * sender + 3 * receiver) % 11 - 4)


def exchanged(comm: Communicator, dtype: np.dtype, shape: tuple[int, ...], count=uneven) -> None:
    """An all-to-allv of `count(sender, receiver)` rows gives what the ranks sent."""
    me, everyone = comm.rank, range(comm.size)
    send = np.concatenate([rows(me, q, count(me, q), dtype, shape) for q in everyone])
    to = np.array([count(me, q) for q in everyone])
    of = np.array([count(q, me) for q in everyone])
    received = comm.all_to_all_v(send, to, of)
    expected = np.concatenate([rows(q, me, count(q, me), dtype, shape) for q in everyone])
    same(received, expected)


def open_files() -> int:
    """Of this process."""
    return len(os.listdir("/proc/self/fd"))


def same(received: np.ndarray, expected: np.ndarray) -> None:
    assert received.dtype == expected.dtype
    assert received.shape == expected.shape
    assert received.tobytes() == expected.tobytes()
    received[...] = received  # may be written to


class CommunicatorContract:
    """Cases that every communicator passes; those between processes say how theirs differs by overriding the first."""

    names_the_lost = False
    """Whether the error of a time-out names the rank that did not come."""

    survives_wrong_counts = True
    """Whether counts that do not agree between two ranks are an error; else they end the process."""

    def limited(self, comm: Communicator, limit: int) -> Communicator:
        """The same ranks with messages of at most so many bytes, where there is such a limit."""
        return comm.duplicate()

    @classmethod
    def cases(cls) -> list[str]:
        return [name for name in dir(cls) if name.startswith("case_")]

    # ---------------------------------------------------------------------------------------------------- exchanges

    def case_all_to_all(self, comm):
        for dtype in DTYPES:
            for shape in ((), (3,), (2, 2), (0,)):
                send = np.stack([rows(comm.rank, q, 2, dtype, shape) for q in range(comm.size)])
                same(comm.all_to_all(send), np.stack([rows(q, comm.rank, 2, dtype, shape) for q in range(comm.size)]))
                flat = np.concatenate([rows(comm.rank, q, 1, dtype, shape) for q in range(comm.size)])
                expected = np.concatenate([rows(q, comm.rank, 1, dtype, shape) for q in range(comm.size)])
                same(comm.all_to_all(flat), expected)

    def case_all_to_all_v(self, comm):
        for dtype in DTYPES:
            for shape in ((), (3,), (2, 3)):
                exchanged(comm, dtype, shape)

    def case_all_to_all_v_of_nothing(self, comm):
        nothing = np.zeros(comm.size, np.int64)
        for shape in ((0,), (0, 4), (0, 0)):
            same(comm.all_to_all_v(np.empty(shape, np.float32), nothing, nothing), np.empty(shape, np.float32))

    def case_all_to_all_v_of_rows_without_bytes(self, comm):
        counts = np.ones(comm.size, np.int64)
        send = np.empty((comm.size, 0), np.int32)
        same(comm.all_to_all_v(send, counts, counts), send)

    def case_all_to_all_v_between_few(self, comm):
        """Only rank 0 has rows, for the last rank; then each for itself alone; then for the next one."""
        last = comm.size - 1
        exchanged(comm, np.dtype("i8"), (), lambda a, b: 100 * (a == 0 and b == last))
        exchanged(comm, np.dtype("u2"), (2,), lambda a, b: 50 * (a == b))
        exchanged(comm, np.dtype("f2"), (2,), lambda a, b: 50 * (b == (a + 1) % comm.size))

    def case_large_messages(self, comm):
        exchanged(comm, np.dtype("f4"), (64,), lambda a, b: 2000 + 100 * a + 10 * b)  # half a megabyte per pair

    def case_arrays_in_any_order(self, comm):
        """Columns of a larger array, and arrays that cannot be written to."""
        counts = np.full(comm.size, 2)
        wide = np.arange(comm.size * 12, dtype=np.int32).reshape(comm.size * 2, 6) + 100 * comm.rank
        received = comm.all_to_all_v(wide[:, 1:3], counts, counts)
        mine = wide[2 * comm.rank : 2 * comm.rank + 2, 1:3] - 100 * comm.rank
        same(received, np.concatenate([mine + 100 * q for q in range(comm.size)]).astype(np.int32))
        wide.flags.writeable = False
        same(comm.all_to_all_v(wide[:, 1:3], counts, counts), received)
        same(comm.all_gather(wide)[comm.rank], wide)
        same(comm.broadcast(wide.T)[:1], wide.T[:1] - 100 * comm.rank)

    def case_what_is_received_is_its_own(self, comm):
        """Neither later changes of what was sent, nor of what another rank received, are seen."""
        send = np.full((comm.size, 4), comm.rank)
        received = [comm.all_to_all(send), comm.all_gather(send[0]), comm.all_reduce(send), comm.broadcast(send)]
        copies = [array.copy() for array in received]
        comm.barrier()
        send[:] = -1
        comm.barrier()
        for array, copy in zip(received, copies, strict=True):
            same(array, copy)
            array[:] = -2
        comm.barrier()
        assert (send == -1).all()

    def case_limited_messages(self, comm):
        """Beyond the limit of a message there are several; all calls give the same."""
        for limit in (1, 7, 64):
            limited = self.limited(comm, limit)
            for dtype, shape in (("u2", (3,)), ("i8", ()), ("?", (5,))):
                exchanged(limited, np.dtype(dtype), shape)
            send = np.stack([rows(comm.rank, q, 2, np.dtype("f4"), (3,)) for q in range(comm.size)])
            same(limited.all_to_all(send), comm.all_to_all(send))
            same(limited.all_gather(send), comm.all_gather(send))
            counts = np.arange(comm.size)
            some = rows(comm.rank, 0, comm.rank, np.dtype("i4"), (3,))
            same(limited.all_gather_v(some, counts), comm.all_gather_v(some, counts))
            same(limited.all_reduce(send), comm.all_reduce(send))
            same(limited.broadcast(send, comm.size - 1), comm.broadcast(send, comm.size - 1))
            limited.close()

    # --------------------------------------------------------------------------------------------------- collectives

    def case_all_gather(self, comm):
        for dtype in DTYPES:
            for shape in ((), (3,), (0,), (2, 2)):
                send = rows(comm.rank, 0, 2, dtype, shape)
                same(comm.all_gather(send), np.stack([rows(q, 0, 2, dtype, shape) for q in range(comm.size)]))
        same(comm.all_gather(np.array(comm.rank)), np.arange(comm.size))

    def case_all_gather_v(self, comm):
        for dtype in DTYPES:
            for shape in ((), (3,)):
                for counts in (np.arange(comm.size), np.arange(comm.size)[::-1] // 2, np.zeros(comm.size, int)):
                    send = rows(comm.rank, 0, int(counts[comm.rank]), dtype, shape)
                    expected = [rows(q, 0, int(n), dtype, shape) for q, n in enumerate(counts)]
                    same(comm.all_gather_v(send, counts), np.concatenate(expected))

    def case_all_gather_v_of_much(self, comm):
        counts = np.where(np.arange(comm.size) == comm.size - 1, 300_000, 3)
        send = rows(comm.rank, 0, int(counts[comm.rank]), np.dtype("i8"))
        expected = np.concatenate([rows(q, 0, int(n), np.dtype("i8")) for q, n in enumerate(counts)])
        same(comm.all_gather_v(send, counts), expected)

    def case_all_reduce(self, comm):
        functions = {"sum": np.add, "max": np.maximum, "min": np.minimum}
        for dtype in DTYPES[:-1]:
            everyone = [rows(q, 0, 5, dtype, (2,)) for q in range(comm.size)]
            for op, function in functions.items():
                expected = everyone[0].copy()
                for other in everyone[1:]:
                    expected = function(expected, other)
                same(comm.all_reduce(everyone[comm.rank], op), expected)

    def case_all_reduce_gives_the_same_bits(self, comm):
        """On every rank, and those of a sum in the order of the ranks; small arrays and large ones."""
        for size in (1, 3, 1001, 70_001):
            floats = [np.random.default_rng([q, size]).normal(size=size).astype(np.float32) for q in range(comm.size)]
            total = comm.all_reduce(floats[comm.rank])
            expected = floats[0].copy()
            for other in floats[1:]:
                expected += other
            same(total, expected)
            assert (comm.all_gather(total) == total).all()

    def case_all_reduce_of_nothing(self, comm):
        same(comm.all_reduce(np.empty((0, 3), np.float32)), np.empty((0, 3), np.float32))

    def case_broadcast(self, comm):
        for root in range(comm.size):
            for dtype in DTYPES:
                for shape in ((), (3,), (0,)):
                    same(comm.broadcast(rows(comm.rank, 1, 4, dtype, shape), root), rows(root, 1, 4, dtype, shape))

    def case_barrier(self, comm):
        """Nobody leaves before the last has come."""
        if comm.rank == comm.size - 1:
            time.sleep(0.1)
        came = time.monotonic()  # of all processes of a machine
        comm.barrier()
        came, left = comm.all_gather(np.array([came, time.monotonic()])).T
        assert left.min() >= came.max()

    def case_many_calls(self, comm):
        for i in range(200):
            received = comm.all_to_all(np.arange(comm.size) + i * comm.rank)
            assert received.tolist() == [comm.rank + i * q for q in range(comm.size)]

    # ------------------------------------------------------------------------------------------------------- groups

    def case_split(self, comm):
        part = comm.split(comm.rank % 2)
        members = list(range(comm.rank % 2, comm.size, 2))
        assert (part.size, part.rank) == (len(members), members.index(comm.rank))
        assert part.all_gather(np.array(comm.rank)).tolist() == members
        exchanged(part, np.dtype("i4"), (2,))
        part.close()

    def case_split_with_keys(self, comm):
        backwards = comm.split(0, -comm.rank)
        assert backwards.rank == comm.size - 1 - comm.rank
        assert backwards.all_gather(np.array(comm.rank)).tolist() == list(range(comm.size))[::-1]
        exchanged(backwards, np.dtype("f8"), ())
        backwards.close()

    def case_split_by_any_color(self, comm):
        """Negative and far apart; each rank alone."""
        alone = comm.split(-1000 + 999_999_999 * comm.rank)
        assert (alone.size, alone.rank) == (1, 0)
        same(alone.all_reduce(np.arange(3)), np.arange(3))
        exchanged(alone, np.dtype("i8"), (2,))
        alone.close()

    def case_nested_splits(self, comm):
        """Of parts of different numbers of ranks, split differently often, and then of all again."""
        part = comm.split(int(comm.rank > 0))
        if comm.rank > 0:
            nested = part.split(part.rank // 2, -part.rank)
            assert nested.all_gather(np.array(part.rank)).tolist() == sorted(
                (r for r in range(part.size) if r // 2 == part.rank // 2), reverse=True
            )
            again = nested.duplicate()
            exchanged(again, np.dtype("u8"), (3,))
        everyone = comm.split(7, -comm.rank)
        exchanged(everyone, np.dtype("i2"), ())
        exchanged(comm, np.dtype("i2"), ())

    def case_duplicates_side_by_side(self, comm):
        """Two threads exchange at once, in different orders of calls."""
        other = comm.duplicate()
        errors: list[BaseException] = []

        def beside():
            try:
                for i in range(30):
                    exchanged(other, np.dtype("i8"), (i % 4 + 1,))
                    assert other.all_reduce(np.array([i])).item() == i * comm.size
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=beside)
        thread.start()
        for i in range(30):
            assert comm.all_gather(np.array([i + comm.rank]))[:, 0].tolist() == [i + q for q in range(comm.size)]
            exchanged(comm, np.dtype("u2"), (2,))
        thread.join()
        assert not errors, errors[0]
        other.close()

    def case_parts_that_are_closed_at_once(self, comm):
        """None is closed while other ranks of it still connect."""
        for _ in range(20):
            comm.split(0).close()

    def case_what_is_closed_is_freed(self, comm):
        """Neither handles nor connections run out."""
        comm.duplicate().close()
        before = open_files()
        for _ in range(20):
            part = comm.split(comm.rank % 2)
            part.barrier()
            part.close()
        deadline = time.monotonic() + 10
        while (now := open_files()) > before + 5 and time.monotonic() < deadline:  # other ranks have some, too
            time.sleep(0.01)
        assert now <= before + 5

    # ------------------------------------------------------------------------------------------------------ bad input

    def case_bad_counts(self, comm):
        """Refused before anything is sent, so that the communicator stays usable."""
        p = comm.size
        good, send = np.ones(p, np.int64), np.zeros(p)
        for bad in (np.ones(p + 1, np.int64), -good, np.zeros(0, np.int64)):
            with pytest.raises(InputError, match="send_counts"):
                comm.all_to_all_v(send, bad, good) if bad.size else comm.all_to_all_v(send, bad.reshape(0, 1), good)
            with pytest.raises(InputError, match="recv_counts"):
                comm.all_to_all_v(send, good, bad)
            with pytest.raises(InputError, match="recv_counts"):
                comm.all_gather_v(send[:1], bad)
        with pytest.raises(InputError, match="send: got"):
            comm.all_to_all_v(np.zeros(p + 1), good, good)
        with pytest.raises(InputError, match="itself"):
            comm.all_to_all_v(send, good, 2 * good)
        with pytest.raises(InputError, match="send: got"):
            comm.all_gather_v(np.zeros(2), good)
        with pytest.raises(InputError, match="one block per rank"):
            comm.all_to_all(np.zeros(p + 1))
        with pytest.raises(InputError, match="root"):
            comm.broadcast(send, p)
        with pytest.raises(InputError, match="op"):
            comm.all_reduce(send, "mean")
        exchanged(comm, np.dtype("i4"), ())

    def case_counts_that_do_not_agree(self, comm):
        """Rank 0 sends one row more than rank 1 expects: found by some rank, and no rank waits for long."""
        if comm.size == 1 or not self.survives_wrong_counts:
            return
        apart = comm.duplicate()
        apart.timeout = 1.0
        counts = np.full(comm.size, 2)
        send_counts = counts.copy()
        if comm.rank == 0:
            send_counts[1] += 1
        failed = False
        try:
            apart.all_to_all_v(np.zeros(send_counts.sum()), send_counts, counts)
        except CommunicationError:
            failed = True
        assert comm.all_reduce(np.array([failed]), "max").item()

    # --------------------------------------------------------------------------------------------------- fail together

    def case_failure_in_the_beginning(self, comm):
        def body(channel):
            self.fail_on(comm, comm.size - 1)
            self.step(channel)

        self.all_raise(comm, body, f"on rank {comm.size - 1}")

    def case_failure_between_exchanges(self, comm):
        def body(channel):
            self.step(channel)
            self.fail_on(comm, comm.size // 2)
            self.step(channel)
            self.step(channel)

        self.all_raise(comm, body, f"on rank {comm.size // 2}")

    def case_failure_after_the_last_exchange(self, comm):
        def body(channel):
            self.step(channel)
            self.fail_on(comm, 0)

        self.all_raise(comm, body, "on rank 0" if comm.size > 1 else "seeds: got 7;")

    def case_failures_of_several(self, comm):
        """At different places: the lowest rank's is raised."""

        def body(channel):
            if comm.rank % 2 == 1:
                self.fail_on(comm, comm.rank)
            self.step(channel)
            self.fail_on(comm, 0)

        with pytest.raises(InputError):
            self.run_together(comm, body)
        self.run_together(comm, self.step)

    def case_all_fail_the_same(self, comm):
        def body(channel):
            self.step(channel)
            self.fail_on(comm, comm.rank)

        self.all_raise(comm, body, "seeds: got 7; expected less")

    def case_failure_of_another_kind(self, comm):
        def body(channel):
            if comm.rank == 0:
                raise ZeroDivisionError("by zero")
            self.step(channel)

        with pytest.raises(RankError if comm.size > 1 else ZeroDivisionError, match="by zero"):
            self.run_together(comm, body)
        self.run_together(comm, self.step)

    def case_failure_in_groups(self, comm):
        """Exchanges within groups: a failure in one is known in the other."""
        color, key = divmod(comm.rank, 2)
        group = comm.split(color, key)
        members = [r for r in range(comm.size) if r // 2 == color]
        channel = Channel(comm, group, members)

        def body(failing):
            with collective(comm, channel):
                self.step(channel)
                self.fail_on(comm, failing)
                self.step(channel)

        with pytest.raises(InputError, match="on rank 0" if comm.size > 1 else "seeds"):
            body(0)
        body(None)

    def case_failures_across_a_recorder(self, comm):
        """What went over a recorder went over its communicator, and the other way round: nobody reports it again."""

        def body(outer, inner):
            with collective(outer):
                self.fail_on(comm, 0)
                with collective(inner):
                    pass

        for pair in ((comm, Recorder(comm)), (Recorder(comm), comm)):
            with pytest.raises(InputError, match="seeds"):
                body(*pair)
            comm.barrier()

    def case_arrays_of_an_exchange(self, comm):
        """They arrive as they were sent: one message for each rank, or each by itself where one rank has many bytes."""
        p, me = comm.size, comm.rank
        for large in ([False] * p, [q == p - 1 for q in range(p)]):  # 4 bytes a number, two in a row
            recorder = Recorder(comm)
            with collective(comm, Channel(comm)):
                counts = np.array([(me + q) % 3 for q in range(p)], np.int64)
                wide = np.full(p, MAX_TOGETHER // 8 + 1 if large[me] else 1, np.int64)
                sends = [
                    Sent(np.repeat(np.arange(p), counts).astype(np.int16) + 100 * me, counts),
                    Sent(np.full((int(wide.sum()), 2), me, np.float32), wide),
                    Sent(np.zeros((0, 3), np.uint8), np.zeros(p, np.int64)),
                ]
                numbers, pairs, nothing = Channel(recorder).exchange(sends, phase="three")
            came = np.array([(me + q) % 3 for q in range(p)])
            assert numbers.counts.tolist() == came.tolist()
            assert numbers.rows.dtype == np.int16
            assert numbers.rows.tolist() == np.repeat(100 * np.arange(p) + me, came).tolist()
            of_rank = [MAX_TOGETHER // 8 + 1 if one else 1 for one in large]
            assert pairs.counts.tolist() == of_rank
            assert pairs.rows.shape == (sum(of_rank), 2)
            assert np.array_equal(pairs.rows[:, 1], np.repeat(np.arange(p), of_rank).astype(np.float32))
            assert nothing.rows.shape == (0, 3)
            assert nothing.rows.dtype == np.uint8
            pairs.rows[:] = 0  # all of it is the caller's own
            assert recorder.traffic.phases["three"].calls == (3 if any(large) else 1)

    def case_any_reduce(self, comm):
        """Each flag by itself, on all ranks."""
        with collective(comm, Channel(comm)):
            flags = Channel(comm).any_reduce(comm.rank == 0, False, comm.rank == comm.size - 1, True)
        assert flags == [True, False, True, True]

    def all_raise(self, comm, body, message):
        """Every rank raises the failing one's error, and the next call works."""
        if comm.size == 1:
            message = "seeds: got 7"
        with pytest.raises(InputError, match=message):
            self.run_together(comm, body)
        self.run_together(comm, self.step)

    @staticmethod
    def run_together(comm, body):
        channel = Channel(comm)
        with collective(comm, channel):
            body(channel)

    @staticmethod
    def step(channel):
        group = channel.group
        sent = Sent(np.full(group.size, group.rank), np.ones(group.size, np.int64))
        assert channel.exchange([sent], phase="step")[0].rows.tolist() == list(range(group.size))
        assert channel.gather([np.array([group.rank])], phase="step")[0].rows.tolist() == list(range(group.size))

    @staticmethod
    def fail_on(comm, rank):
        if comm.rank == rank:
            raise InputError(argument="seeds", given="7", expected="less")

    # ------------------------------------------------------------------------------------------------------ lost ranks

    def case_a_rank_that_does_not_come(self, comm):
        """The others raise when the time is up; other communicators of the same ranks go on."""
        if comm.size == 1:
            return
        apart = comm.duplicate()
        apart.timeout = 0.5
        lost = comm.size - 1
        if comm.rank != lost:
            with pytest.raises(CommunicationError) as raised:
                apart.all_to_all(np.arange(comm.size), phase="rows")
            if self.names_the_lost:
                assert "rows" in str(raised.value)
                assert "all_to_all" in str(raised.value)
                assert f"nothing was heard of rank {getattr(apart, 'world', range(9))[lost]}" in str(raised.value)
            with pytest.raises(CommunicationError):
                apart.barrier()
        exchanged(comm, np.dtype("i4"), ())

    # --------------------------------------------------------------------------------------------------- out of step

    def case_another_call_on_one_rank(self, comm):
        """Each pair of calls that differ in what they do, in what they are for, or in what they move."""
        p = comm.size
        counts = np.ones(p, np.int64)
        calls = {
            "all_to_all": lambda c: c.all_to_all(np.zeros(p), phase="one"),
            "all_to_all_v": lambda c: c.all_to_all_v(np.zeros(p), counts, counts, phase="one"),
            "all_gather": lambda c: c.all_gather(np.zeros(p), phase="one"),
            "all_gather in phase .one. of float32": lambda c: c.all_gather(np.zeros(p, np.float32), phase="one"),
            "all_gather in phase .two.": lambda c: c.all_gather(np.zeros(p), phase="two"),
            "all_gather_v": lambda c: c.all_gather_v(np.zeros(1), counts, phase="one"),
            "all_reduce .sum. in phase .one. of float64 .1,.": lambda c: c.all_reduce(np.zeros(1), phase="one"),
            "all_reduce .max.": lambda c: c.all_reduce(np.zeros(1), "max", phase="one"),
            "all_reduce .sum. in phase .one. of float64 .70001,.": lambda c: c.all_reduce(
                np.zeros(70_001), phase="one"
            ),
            "broadcast": lambda c: c.broadcast(np.zeros(3), p - 1, phase="one"),
            "exchange": lambda c: Channel(c).exchange([Sent(np.zeros(p), counts)], phase="one"),
            "gather": lambda c: Channel(c).gather([np.zeros(1)], phase="one"),
            "reduce_max": lambda c: Channel(c).reduce_max(3),
            "any_reduce": lambda c: Channel(c).any_reduce(True),
            "a collective call": lambda c: self.run_together(c, lambda channel: None),
            "split": lambda c: c.split(0),
        }
        names = list(calls)
        for i, name in enumerate(names):
            self.out_of_step(comm, calls, name, names[i - 1])

    def out_of_step(self, comm, calls, name, other):
        """All ranks raise, and say who was where."""
        if comm.size == 1:
            return
        apart, odd = comm.duplicate(), comm.size // 2
        apart.timeout = 10.0
        numbers = getattr(apart, "world", range(9))
        with pytest.raises(CommunicationError, match="the ranks are in different calls") as raised:
            calls[other if comm.rank == odd else name](apart)
        said = str(raised.value)
        assert re.search(rf"rank {numbers[odd]} in {other}", said), said
        assert re.search(rf"ranks? [^a-z]*\b{numbers[0 if odd else 1]}\b[^a-z]* in {name}", said), said

    def case_a_failure_meets_another_call(self, comm):
        """One rank fails in a collective call, while the others are in one within it, or after it: all raise that."""
        if comm.size == 1:
            return
        calls = [
            lambda c: c.all_reduce(np.zeros(1)),
            lambda c: self.run_together(c, self.step),
            lambda c: self.run_together(c, lambda channel: None),
        ]
        for channels in (0, 1):
            for call in calls:
                apart = comm.duplicate()
                apart.timeout = 10.0
                with pytest.raises(RankError, match=f"rank {comm.size - 1} failed: ZeroDivisionError: by zero"):
                    self.failing_last(apart, call, channels)
                assert apart.all_gather(np.array(comm.rank)).tolist() == list(range(comm.size))

    @staticmethod
    def failing_last(comm, call, channels):
        """`call` within a collective call; the last rank fails in that instead."""
        with collective(comm, *[Channel(comm)] * channels):
            if comm.rank == comm.size - 1:
                raise ZeroDivisionError("by zero")
            call(comm)

    # -------------------------------------------------------------------------------------------------------- counting

    def case_recorder(self, comm):
        p, r = comm.size, comm.rank
        recorder = Recorder(comm)
        recorder.all_to_all(np.zeros((p, 5), np.int16), phase="blocks")
        to = np.array([uneven(r, q) for q in range(p)])
        of = np.array([uneven(q, r) for q in range(p)])
        recorder.all_to_all_v(np.zeros((to.sum(), 3), np.float32), to, of, phase="rows")
        recorder.all_gather(np.zeros(7, np.uint8), phase="gather")
        recorder.all_gather_v(np.zeros(r, np.int64), np.arange(p), phase="gather")
        recorder.all_reduce(np.zeros(p * 10, np.float64), phase="reduce")
        recorder.broadcast(np.zeros(9, np.int32), p - 1, phase="broadcast")
        recorder.split(0).all_gather(np.zeros(2, np.int8), phase="part")

        def counts(phase):
            c = recorder.traffic.phases[phase]
            return c.calls, c.messages_sent, c.messages_received, c.bytes_sent, c.bytes_received

        others = [q for q in range(p) if q != r]
        n = p - 1
        assert counts("blocks") == (1, n, n, 10 * n, 10 * n)
        assert counts("rows") == (
            1,
            sum(uneven(r, q) > 0 for q in others),
            sum(uneven(q, r) > 0 for q in others),
            12 * sum(uneven(r, q) for q in others),
            12 * sum(uneven(q, r) for q in others),
        )
        sent = n if r else 0  # rank 0 has no row
        assert counts("gather") == (
            2,
            n + sent,
            n + sum(q > 0 for q in others),
            (7 + 8 * r) * n,
            7 * n + 8 * sum(others),
        )
        assert counts("reduce") == (1, 2 * n, 2 * n, 160 * n, 160 * n)
        root = r == p - 1
        assert counts("broadcast") == ((1, n, 0, 36 * n, 0) if root else (1, 0, 1, 0, 36))
        assert counts("part") == (1, n, n, 2 * n, 2 * n)

    def case_objects_are_refused(self, comm):
        if comm.name in ("threads", "local"):
            return
        with pytest.raises(DTypeError, match="object"):
            comm.all_gather(np.array([None]))
