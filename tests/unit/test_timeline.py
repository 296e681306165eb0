"""Seconds by phase, timelines and their files."""

from __future__ import annotations

import errno
import json
import os
import pickle
import threading
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spsample as sp
from spsample.comm import Recorder, run_threads
from spsample.data import planted
from spsample.errors import DTypeError, InputError
from spsample.timeline import Phases, Timeline, clocks, spans, stage_times, waiting_for, work_seconds
from spsample.timeline import timeline as timeline_module

DATA = planted(600)


def trace_of(path):
    """The file, with its spans by (rank, thread)."""
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = {}
    for event in events:
        assert event["ph"] in "XM"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] == float(event["ts"])
            assert event["cat"] in ("phase", "part")
            rows.setdefault((event["pid"], names[event["pid"], event["tid"]]), []).append(event)
    return SimpleNamespace(rows=rows, facts=trace["otherData"], names=names)


def loader(timeline=None, **options):
    options = {"batch_size": 32, "bulk_size": 4, "features": DATA.x, "labels": DATA.y, **options}
    return sp.BulkLoader(DATA.graph, DATA.train_idx, sp.GraphSAGE([5, 3]), timeline=timeline, **options)


def seconds_of(events, category="phase"):
    total = Counter()
    for event in events:
        if event["cat"] == category:
            total[event["name"]] += event["dur"] / 1e6
    return total


class Ticks:
    """A clock that goes on by a second at each reading, and by what is added to `now`."""

    def __init__(self):
        self.now, self._lock = 0.0, threading.Lock()

    def perf_counter(self):
        with self._lock:
            self.now += 1.0
            return self.now


def run_by(clock, monkeypatch):
    for module in (clocks, spans):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def clock(monkeypatch):
    return run_by(Ticks(), monkeypatch)


def test_phases_count_what_any_thread_does(clock):
    counted = Phases(["a"])

    def body():
        for _ in range(500):
            with counted.timed("a"):
                pass
            counted.add("b", 0.0, 0.25, None)

    threads = [threading.Thread(target=body) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.seconds["b"] == 1000.0  # exact: quarters
    assert counted.seconds["a"] >= 8 * 500


def test_a_block_that_fails_is_counted(clock):
    counted = Phases()

    def fails():
        with counted.timed("a"):
            clock.now += 10.0
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert counted.seconds == {"a": 11.0}


def test_what_leaving_a_context_takes_is_counted_alone(clock):
    class Slow:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            clock.now += 10.0
            return kind is KeyError

    counted = Phases()
    with counted.leaving("end", Slow()):
        clock.now += 100.0
        raise KeyError  # which the context takes
    assert counted.seconds == {"end": 11.0}
    with pytest.raises(DTypeError, match="context"):
        counted.leaving("end", None)


def test_seconds_are_a_copy_and_can_be_pickled(clock, tmp_path):
    with Timeline(tmp_path / "t.json") as timeline:
        counted = Phases(["a"], timeline)
        with counted.timed("b"):
            pass
        counted.seconds["b"] = 7.0
        other = pickle.loads(pickle.dumps(counted))
    assert other.seconds == counted.seconds
    assert other.seconds == {"a": 0.0, "b": 1.0}
    assert other.timeline is None
    with other.timed("b"), other.part("c"):
        pass
    assert (other.seconds["b"], counted.seconds["b"]) == (2.0, 1.0)


def test_items_are_timed_and_not_kept(clock):
    """An item is given up before the next one is waited for: a bulk would be kept otherwise."""
    import weakref

    class Item:
        pass

    alive = []

    def items():
        for _ in range(3):
            assert [ref for ref in alive if ref() is not None] == []
            item = Item()
            alive.append(weakref.ref(item))
            yield item
            del item

    counted = Phases()
    for item in counted.over("reading", items()):
        assert isinstance(item, Item)
        del item
    assert len(alive) == 3
    assert counted.seconds["reading"] == 4.0  # three items, and that there are no more


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_loader_notes_what_its_threads_do(prefetch, tmp_path):
    with Timeline(tmp_path / "t.json") as timeline:
        batches = loader(timeline, prefetch=prefetch)
        batches._serial_choice = None  # a slow machine may not change the way, and make a batch again
        for batch in batches:
            with timeline.span("training", batch.batch_id), timeline.span("forward", category="part"):
                pass
        assert [batch.batch_id for batch in batches] == list(range(len(batches)))  # a second epoch, in the same rows
    trace = trace_of(tmp_path / "t.json")
    assert {*trace.names.values()} == ({"sampling", "features", "main"} if prefetch else {"main"})
    everything = [event for row in trace.rows.values() for event in row]
    assert min(event["ts"] for event in everything) >= 0
    measured = seconds_of(everything)
    for phase, seconds in batches.seconds.items():
        assert measured[phase] == pytest.approx(seconds, abs=1e-5), phase
    features = [e["args"]["batch"] for e in everything if e["name"] == "features"]
    assert Counter(features) == {number: 4 for number in range(len(batches))}  # gathered and collated, twice
    bulks = sorted({e["args"]["batch"] for e in everything if e["name"] == "sampling"})
    assert bulks[0] == 0
    assert bulks[-1] in (len(batches), *range(len(batches)))
    waits = {name for name in measured if " waiting for " in name}
    if prefetch:
        always = {"sampling waiting for room", "features waiting for input"}
        assert waits in (always, always | {"features waiting for room"})  # an epoch may be three chunks
    else:
        assert not waits
        assert "waiting" not in measured


def test_spans_of_a_thread_are_nested_or_apart(tmp_path):
    with Timeline(tmp_path / "t.json") as timeline:
        for batch in loader(timeline):
            with timeline.span("training", batch.batch_id):
                for part in ("forward", "backward"):
                    with timeline.span(part, category="part"):
                        sum(range(100))
    for row in trace_of(tmp_path / "t.json").rows.values():
        for category in ("phase", "part"):
            same = sorted((round(1e3 * e["ts"]), round(1e3 * e["dur"])) for e in row if e["cat"] == category)
            assert all(begin + length <= after for (begin, length), (after, _) in pairwise(same))
        outer = [(e["ts"], e["ts"] + e["dur"]) for e in row if e["cat"] == "phase"]
        for part in (e for e in row if e["cat"] == "part"):
            begin, end = part["ts"], part["ts"] + part["dur"]
            assert any(a <= begin + 1e-3 and end <= b + 1e-3 for a, b in outer), part


def test_threads_of_one_name_at_one_time_have_rows_of_their_own(tmp_path):
    barrier = threading.Barrier(2)

    def body():
        for _ in range(2):
            barrier.wait(10)
            with timeline.span("work"):
                pass
            barrier.wait(10)

    with Timeline(tmp_path / "t.json") as timeline:
        for _ in range(2):  # those that follow take the rows of those that have ended
            threads = [threading.Thread(target=body, name="spsample twin") for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    rows = trace_of(tmp_path / "t.json").rows
    assert {name: len(row) for (_, name), row in rows.items()} == {"twin": 4, "twin 2": 4}


def test_memory_is_bounded_and_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(spans, "SPANS_IN_MEMORY", 8)
    monkeypatch.setattr(timeline_module, "SPANS_IN_MEMORY", 8)
    with Timeline(tmp_path / "t.json") as timeline:
        for number in range(101):
            timeline.add("work", number, number + 0.5, number)
            assert len(timeline._spans._waiting) < 8
    (row,) = trace_of(tmp_path / "t.json").rows.values()
    assert [event["args"]["batch"] for event in row] == list(range(101))
    assert {event["dur"] for event in row} == {0.5e6}


def test_a_full_disk_leaves_spans_out_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(spans, "SPANS_IN_MEMORY", 8)
    monkeypatch.setattr(timeline_module, "SPANS_IN_MEMORY", 8)

    class Full:
        def __init__(self, file):
            self.file, self.writes = file, 0

        def write(self, data):
            self.writes += 1
            if self.writes > 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.file.write(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

    with Timeline(tmp_path / "t.json") as timeline:
        timeline._spans._file = Full(timeline._spans._file)
        for number in range(20):
            timeline.add("work", number, number + 0.5, number)
    (row,) = trace_of(tmp_path / "t.json").rows.values()
    assert [event["args"]["batch"] for event in row] == list(range(16))
    assert timeline.left_out == 4
    assert trace_of(tmp_path / "t.json").facts["spans left out"] == 4


def test_a_forked_process_adds_nothing(tmp_path):
    with Timeline(tmp_path / "t.json") as timeline:
        timeline.add("work", 0.0, 1.0)
        child = os.fork()
        if child == 0:
            for _ in range(3 * spans.SPANS_IN_MEMORY):
                timeline.add("stray", 0.0, 1.0)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    (row,) = trace_of(tmp_path / "t.json").rows.values()
    assert [event["name"] for event in row] == ["work"]


def test_what_comes_after_the_end_is_dropped(tmp_path):
    timeline = Timeline(tmp_path / "t.json")
    timeline.add("work", 0.0, 1.0)
    timeline.close()
    timeline.add("late", 0.0, 1.0)
    before = (tmp_path / "t.json").read_bytes()
    timeline.close()
    assert (tmp_path / "t.json").read_bytes() == before
    assert b"late" not in before
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_a_run_that_fails_leaves_a_file_that_can_be_read(tmp_path):
    def fails():
        with Timeline(tmp_path / "t.json") as timeline:
            with timeline.span("work"):
                pass
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert trace_of(tmp_path / "t.json").rows.keys() == {(0, "main")}


def test_ranks_that_fail_write_each_their_own(tmp_path):
    def body(comm):
        with Timeline(tmp_path / "t.json", comm) as timeline:
            with timeline.span("work", comm.rank):
                pass
            comm.barrier()
            if comm.rank == 1:
                raise KeyError("rank 1 fails")
            comm.barrier()

    with pytest.raises(KeyError, match="rank 1 fails"):
        run_threads(3, body)
    assert {path.name for path in tmp_path.iterdir()} == {"t.json", "t-rank-1.json", "t-rank-2.json"}
    for rank, name in enumerate(["t.json", "t-rank-1.json", "t-rank-2.json"]):
        trace = trace_of(tmp_path / name)
        ((key, (event,)),) = trace.rows.items()
        assert key[0] == rank == event["args"]["batch"]
        assert trace.facts["ranks"] == 3
        assert trace.facts["ranks in this file"] == [rank]


def test_a_rank_that_fails_last_leaves_all_files(tmp_path):
    """The others are in the gathering by then."""

    def body(comm):
        with Timeline(tmp_path / "t.json", comm) as timeline:
            with timeline.span("work", comm.rank):
                pass
            if comm.rank == 1:
                raise KeyError("rank 1 fails")

    with pytest.raises(KeyError, match="rank 1 fails"):
        run_threads(3, body)
    assert {path.name for path in tmp_path.iterdir()} == {"t.json", "t-rank-1.json", "t-rank-2.json"}
    assert [event["args"]["batch"] for event in trace_of(tmp_path / "t.json").rows[0, "main"]] == [0]


class SkewedClock:
    """A clock for each rank, of another beginning, and fast or slow; the true one goes on by a tick a reading."""

    TICK = 1e-4

    def __init__(self):
        self.mine, self.true = threading.local(), Ticks()

    def moment(self):
        return 1e5 + self.TICK * self.true.perf_counter()

    def perf_counter(self):
        begin, rate = getattr(self.mine, "skew", (0.0, 1.0))
        return begin + rate * self.moment()


@pytest.mark.parametrize("rate", [1.0, 1.001])
def test_clocks_of_ranks_are_aligned(rate, tmp_path, monkeypatch):
    """Ranks note the same moments by clocks that are hours apart, and drift a thousand times as much as real ones."""
    clock, moments = run_by(SkewedClock(), monkeypatch), [[], [], []]

    def body(comm):
        clock.mine.skew = ((0.0, 1.0), (1e4, rate), (-5e4, 1 / rate))[comm.rank]
        with Timeline(tmp_path / "t.json", comm) as timeline:
            for number in range(20):
                comm.barrier()
                moments[comm.rank].append(clock.moment())
                timeline.add("now", clock.perf_counter(), clock.perf_counter(), number)
                comm.barrier()
                if comm.rank == 0:
                    clock.true.now += 1 / clock.TICK

    run_threads(3, body)
    trace = trace_of(tmp_path / "t.json")
    begins = np.array([[event["ts"] / 1e6 for event in row] for _, row in sorted(trace.rows.items())])
    true = np.array(moments) - moments[0][0]
    allowed = (
        trace.facts["clock error, us"] / 1e6 + 8 * clock.TICK
    )  # the other ranks read the clock between two readings
    assert allowed < 40 * clock.TICK
    np.testing.assert_allclose(begins - begins[0, 0], true, rtol=0, atol=2 * allowed)


def test_what_the_gathering_sends_is_counted(tmp_path):
    def body(comm):
        ranks = Recorder(comm)
        with Timeline(tmp_path / "t.json", ranks) as timeline:
            for _ in range(10):
                timeline.add("work", 0.0, 1.0)
        return ranks.traffic.phases["timeline"].bytes_sent

    sent = run_threads(2, body)
    assert sent[1] >= 10 * spans.SPAN.itemsize


def test_ranks_with_unequal_spans(tmp_path, monkeypatch):
    monkeypatch.setattr(spans, "SPANS_IN_MEMORY", 8)
    monkeypatch.setattr(timeline_module, "SPANS_IN_MEMORY", 8)

    def body(comm):
        with Timeline(tmp_path / "t.json", comm) as timeline:
            for number in range(9 * comm.rank):
                timeline.add(f"work {number % 3} of rank {comm.rank}", number, number + 1, number)

    run_threads(3, body)
    trace = trace_of(tmp_path / "t.json")
    assert {rank: len(row) for (rank, _), row in trace.rows.items()} == {1: 9, 2: 18}
    for (rank, _), row in trace.rows.items():
        assert [e["name"] for e in row] == [f"work {i % 3} of rank {rank}" for i in range(9 * rank)]


def refusals(tmp_path):
    (tmp_path / "locked").mkdir()
    return [tmp_path / "none" / "t.json", tmp_path, tmp_path / "locked" / "x" / "t.json"]


def test_paths_that_cannot_be_written_are_refused_on_all_ranks(tmp_path):
    for path in refusals(tmp_path):
        with pytest.raises(InputError, match=r"path: got .*; expected a file in a folder that exists"):
            Timeline(path)

        def body(comm, path=path):
            with pytest.raises(InputError, match="path: got"):
                Timeline(path, comm)
            return True

        assert run_threads(2, body) == [True, True]
    for junk in (3, None, ""):
        with pytest.raises((DTypeError, InputError)):
            Timeline(junk)
    with pytest.raises(DTypeError, match="comm"):
        Timeline(tmp_path / "t.json", "comm")
    with pytest.raises(DTypeError, match="timeline"):
        loader("t.json")


@given(st.dictionaries(st.sampled_from(["sampling", "features", "waiting", "training", "evaluation"]), st.floats(0, 9)))
def test_stages_are_read_off_the_seconds(seconds):
    assert stage_times(seconds) == []
    assert work_seconds(seconds) == seconds
    waits = {waiting_for("room", "sampling"): 2.0, waiting_for("input", "features"): 3.0}
    found = {stage.stage: stage for stage in stage_times({**seconds, **waits})}
    assert found["sampling"].waited == {"room": 2.0}
    assert found["features"].waited == {"input": 3.0}
    assert found["sampling"].worked == seconds.get("sampling", 0.0)
    assert ("training" in found) == ("training" in seconds)
    if "training" in seconds:
        waits[waiting_for("ranks", "training")] = 1.5
        last = stage_times({**seconds, **waits})
        assert {stage.stage: stage for stage in last}["training"].waited == {
            "input": seconds.get("waiting", 0.0),
            "ranks": 1.5,
        }
    assert work_seconds({**seconds, **waits}) == seconds
