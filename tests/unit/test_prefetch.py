"""Prefetch: same batches, exact states, and no thread left behind, however a pass ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import spsample as sp
from spsample.data import planted
from spsample.errors import BackendError
from spsample.loading import BulkLoader
from spsample.loading.prefetch import StageChain, _end

DATA = planted(600, degree=6, random_seed=1)
SEEDS = np.arange(0, 600, 2)


def make(**changes: Any) -> BulkLoader:
    options: dict[str, Any] = {"batch_size": 16, "bulk_size": 3, "features": DATA.x, "labels": DATA.y}
    options.update(changes)
    return BulkLoader(DATA.graph, SEEDS, sp.GraphSAGE([3, 2]), **options)


def fingerprint(batch: Any) -> list[Any]:
    layers = [[one.adj.indptr.tolist(), one.adj.indices.tolist()] for one in batch.layers]
    return [batch.batch_id, batch.seeds.tolist(), batch.x.tolist(), batch.y.tolist(), batch.input_id.tolist(), layers]


def threads() -> int:
    return sum(thread.name.startswith("spsample") for thread in threading.enumerate())


@pytest.mark.parametrize("bulk_size", [1, 3, 100])
@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_prefetch_changes_nothing(prefetch: int, bulk_size: int) -> None:
    expected = [fingerprint(batch) for batch in make(prefetch=0)]
    assert [fingerprint(batch) for batch in make(prefetch=prefetch, bulk_size=bulk_size)] == expected
    assert threads() == 0


@pytest.mark.parametrize("delivered", [0, 1, 2, 3, 10, 18, 19])
def test_a_state_is_exact_inside_a_bulk_and_while_threads_are_ahead(delivered: int) -> None:
    epochs = make(prefetch=0)
    expected = [fingerprint(batch) for _ in range(2) for batch in epochs]
    loader = make()
    batches = iter(loader)
    seen = [fingerprint(next(batches)) for _ in range(delivered)]
    time.sleep(0.02)  # the threads run ahead
    state = loader.state_dict()
    resumed = make(bulk_size=4, prefetch=2)
    resumed.load_state_dict(state)
    assert seen + [fingerprint(batch) for _ in range(2) for batch in resumed] == expected


def test_all_batches_may_be_kept() -> None:
    assert len(list(make(bulk_size=1))) == len(make())


def test_threads_end_when_a_pass_is_left() -> None:
    for _ in make():
        break
    gc.collect()
    assert threads() == 0
    batches = iter(make())
    next(batches)
    assert threads() == 2
    del batches
    gc.collect()
    assert threads() == 0


class Item:
    """What a thread makes."""


@pytest.mark.parametrize("wraps", [False, True])
def test_what_a_pipeline_made_goes_with_it(wraps: bool) -> None:
    """Without garbage collection: a loader may change between threads and turns several times before there is one."""
    made: list[weakref.ref[Item]] = []
    left = threading.Event()

    def make_items() -> Iterator[Item]:
        while True:
            item = Item()
            made.append(weakref.ref(item))
            yield item
            del item

    def read(items: Iterator[Item]) -> Iterator[Item]:
        try:
            for item in items:
                yield item
                left.wait()  # then the next item is asked for, and there is none
        except BackendError as error:
            if wraps:
                raise RuntimeError("what a transform says") from error
            raise

    gc.collect()
    gc.disable()
    try:
        with StageChain() as chain:
            items = chain.prefetch(make_items(), ahead=1, name="making")
            last = chain.prefetch(read(items), ahead=2, name="reading")
            next(last)
            threading.Timer(0.05, left.set).start()
        if not wraps:
            assert chain.failures == []  # other ranks are told of none
        del chain, items, last
        assert made
        assert [one() for one in made if one() is not None] == []
    finally:
        gc.enable()


def test_threads_end_with_an_exception_of_the_loop() -> None:
    def use() -> None:
        for _ in make():
            raise RuntimeError("of the loop")

    with pytest.raises(RuntimeError, match="of the loop"):
        use()
    gc.collect()
    assert threads() == 0


def test_threads_end_with_a_cycle() -> None:
    class Holder:
        pass

    holder: Any = Holder()
    holder.batches, holder.me = iter(make()), holder
    next(holder.batches)
    del holder
    gc.collect()
    assert threads() == 0


class Failing(sp.features.FeatureSource):
    num_rows, dim = 600, 2

    def _read(self, ids: Any, out: Any, at: Any = None) -> None:
        raise ZeroDivisionError("of the store")


@pytest.mark.parametrize("prefetch", [0, 1])
def test_an_error_of_a_thread_is_raised_in_the_loop_with_its_traceback(prefetch: int) -> None:
    with pytest.raises(ZeroDivisionError, match="of the store") as caught:
        next(iter(make(features=Failing(), prefetch=prefetch)))
    assert "in _read" in "".join(traceback.format_tb(caught.value.__traceback__))
    gc.collect()
    assert threads() == 0


def test_the_kernels_use_as_many_threads_as_the_loop_may() -> None:
    seen: list[int] = []

    class Counting(Failing):
        def _read(self, ids: Any, out: Any, at: Any = None) -> None:
            from spsample.sparse import get_num_threads

            seen.append(get_num_threads())
            out[:] = 0

    from spsample.sparse import get_num_threads, set_num_threads

    before = get_num_threads()
    try:
        set_num_threads(3)
        list(make(features=Counting()))
        assert set(seen) == {get_num_threads()}
    finally:
        set_num_threads(before)


def test_waiting_is_counted() -> None:
    loader = make()
    list(loader)
    assert loader.seconds["waiting"] > 0
    assert loader.seconds["sampling"] > 0
    synchronous = make(prefetch=0)
    list(synchronous)
    assert synchronous.seconds["waiting"] == 0


def test_at_most_so_many_items_are_begun() -> None:
    begun: list[int] = []

    def source() -> Any:
        for i in range(10):
            begun.append(i)
            yield i

    with StageChain() as chain:
        stage = chain.prefetch(source(), 2, "test")
        for i in range(5):
            assert next(stage) == i
            time.sleep(0.01)
            assert len(begun) <= i + 2
            stage.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_pass() -> None:
    """The child is told that the pass is not its own, and can begin another one."""
    script = """
import os, sys
sys.path[:0] = PATH
from tests.unit.test_prefetch import make, BackendError
batches = iter(make())
next(batches)
child = os.fork()
if child == 0:
    try:
        next(batches)
    except BackendError:
        print("refused", len(list(make())), flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print("parent", 1 + len(list(batches)))
"""
    assert run(script).split() == ["refused", "19", "parent", "19"]
    assert BackendError is not None


def test_the_interpreter_exits_in_the_middle_of_a_pass() -> None:
    assert run(SETUP + "batches = iter(make()); next(batches); print('done')") == "done\n"


def test_ctrl_c_ends_a_pass() -> None:
    script = SETUP + "\nimport time\nprint('ready', flush=True)\nwhile True:\n    for _ in make(): time.sleep(0.01)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", with_path(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    assert b"Fatal" not in errors
    assert process.returncode != 0


def test_ctrl_c_while_threads_end_waits_for_them():
    """The first stage is busy when the chain ends; an interrupt in the wait is raised after it has ended."""
    busy, struck = threading.Event(), threading.Event()

    def slow():
        yield 0
        busy.set()
        struck.wait(30)
        yield 1

    def strike():
        signal.raise_signal(signal.SIGINT)
        struck.set()

    def interrupted():
        with StageChain() as chain:
            stage = chain.prefetch(slow(), ahead=2, name="slow")
            next(stage)
            busy.wait()
            threading.Timer(0.1, strike).start()

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert threads() == 0


SETUP = "import sys\nsys.path[:0] = PATH\nfrom tests.unit.test_prefetch import make\n"


def with_path(script: str) -> str:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return f"PATH = {[root, *filter(None, sys.path)]!r}\n{script}"


def run(script: str) -> str:
    command = [sys.executable, "-c", with_path(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_threads_work_on_the_stream_of_the_one_that_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a GPU, as torch has it: each thread has a current stream, and at first that is the default one."""
    local = threading.local()

    class Entered:
        def __init__(self, stream: SimpleNamespace) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            local.stream = self.stream

        def __exit__(self, *_: object) -> None:
            local.stream = "default"

    torch = SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: True, device=nullcontext, stream=Entered, current_stream=lambda: local.stream
        )
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    local.stream = side = SimpleNamespace(device=1)
    with StageChain() as chain:
        used = chain.prefetch((local.stream for _ in range(2)), ahead=3, name="streams")
        assert list(used) == [side, side]


class BadlyClosed:
    """A source that fails when it is closed."""

    def __init__(self):
        self._items = iter(range(3))

    def __next__(self):
        return next(self._items)

    def close(self):
        raise OSError("no way to close")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_source_that_cannot_be_closed_is_not_waited_for():
    """The pass ends all the same."""

    def body():
        with StageChain() as chain:
            stage = chain.prefetch(BadlyClosed(), ahead=1, name="bad")
            assert next(stage) == 0

    ending = threading.Thread(target=body, daemon=True)
    ending.start()
    ending.join(10)
    assert not ending.is_alive()


# ---- a Ctrl-C at any line


INTERRUPTED = """
import os, sys
import numpy as np
from spsample import sparse
from spsample.loading.prefetch import StageChain

indptr = np.arange(1501, dtype=np.int64) * 60
matrix = sparse.CSRMatrix(indptr, np.tile(np.arange(60, dtype=np.int64), 1500), np.ones(90_000), (1500, 1500))

def products():
    while True:
        yield sparse.spgemm(matrix, matrix)

def run():
    with StageChain() as chain:
        stage = chain.prefetch(products(), ahead=2, name="products")
        next(stage)
        stage.release()

def interrupted_at(line):
    seen = 0
    def trace(frame, event, argument):
        nonlocal seen
        if not frame.f_code.co_filename.endswith(("prefetch.py", "weakref.py")):
            return None
        if event == "line":
            seen += 1
            if seen == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace
    sys.settrace(trace)
    try:
        run()
    except (KeyboardInterrupt, RuntimeError):  # "release unlocked lock" where it came inside `with lock`
        return True
    finally:
        sys.settrace(None)
    return seen >= line

products().send(None)  # what is imported is imported
line = 0
while True:
    line += 1
    child = os.fork()
    if child == 0:
        sys.exit(1 if interrupted_at(line) else 0)
    status = os.waitpid(child, 0)[1]
    print(line, os.waitstatus_to_exitcode(status), flush=True)
    if status == 0:
        break
"""


def test_a_ctrl_c_at_any_line_leaves_no_thread_in_a_kernel() -> None:
    """One at each line of the chain, and of what it calls in `weakref` and `threading`: no process aborts."""
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=600)
    codes = [int(line.split()[1]) for line in ended.stdout.splitlines()]
    assert len(codes) > 40, ended.stderr
    assert codes == [1] * (len(codes) - 1) + [0], (codes, ended.stderr)


def test_both_finalizers_of_a_pipeline_at_a_time() -> None:
    """Garbage collection within one calls the other: each thread is waited for, and nobody fails."""
    ended: list[str] = []

    def fake(name: str) -> Any:
        return SimpleNamespace(close=lambda: None, join=lambda seconds: (ended.append(name), collected()))

    def collected() -> None:
        if len(ended) == 1:
            _end(prefetchers, None)

    prefetchers = [fake("one"), fake("two")]
    _end(prefetchers, None)
    assert prefetchers == []
    assert ended == ["one", "one", "two"]
