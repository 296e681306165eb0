"""Locks over forks: each lock of the package is renewed, and processes forked while threads work do end."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import spsample as sp
from spsample.common.contents import Contents
from spsample.common.locks import renewed, was_held
from spsample.loading.factored.epoch import BatchQueue
from spsample.timeline import Phases, Timeline

PACKAGE = Path(sp.__file__).parent
LOCKS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
QUEUES = {"Queue", "LifoQueue", "PriorityQueue"}  # `SimpleQueue` holds no lock but while it is empty

NOT_RENEWED = {
    # Below the room of the helper. CUDA refuses every call in a process that was forked after its first one.
    ("backends/cuda/streams.py", "Lock"),
}

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def made_plainly(source: str) -> list[str]:
    """Names of locks that a source makes, or hands on, but not to `renewed`; and of what has locks within."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    renewals = [call for call in nodes if isinstance(call, ast.Call) and named(call.func) == "renewed"]
    others = [node.annotation for node in nodes if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation]
    others += [node.returns for node in nodes if isinstance(node, ast.FunctionDef) and node.returns]
    aside = {id(inner) for outer in (*renewals, *others) for inner in ast.walk(outer)}
    names = [named(node) for node in nodes if id(node) not in aside]
    return [name for name in names if name in LOCKS | QUEUES | {"cached_property"}]


def named(node: ast.AST) -> str:
    """A name, by itself or of a module; torch's events are no locks."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def test_every_lock_is_renewed():
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in made_plainly(path.read_text(encoding="utf-8"))
    }
    assert found == NOT_RENEWED


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("self._lock = Lock()", ["Lock"]),
        ("self._lock = renewed(Lock())", []),
        ("a, b = renewed(threading.RLock()), threading.Condition()", ["Condition"]),
        ("x: queue.Queue[int] = queue.Queue(3)", ["Queue"]),
        ("event = torch.cuda.Event()", []),
        ("def make(kind: type[Lock]) -> Lock: ...", []),
        ("def make(kind=Lock): ...", ["Lock"]),
        ("lock: Lock = field(default_factory=Lock)", ["Lock"]),
        ("class A:\n    @functools.cached_property\n    def b(self): ...", ["cached_property"]),
    ],
)
def test_what_counts_as_a_lock(source, found):
    assert made_plainly(source) == found


def test_a_lock_that_cannot_be_renewed_is_refused():
    with pytest.raises(AttributeError):
        renewed(threading.Semaphore())


def ends(body) -> bool:
    """Whether a forked process does it and ends, within a time that only a hang takes."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_fork
@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock, threading.Condition])
def test_a_lock_that_another_thread_holds(kind):
    lock, is_held, let_go = renewed(kind()), threading.Event(), threading.Event()

    def hold():
        with lock:
            is_held.set()
            let_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()

    def child():
        assert was_held(lock) == (kind is threading.Lock)
        with lock:
            pass
        assert ends(lock.acquire)  # once more: now this thread has let go of it

    assert ends(child)
    let_go.set()
    thread.join()
    assert not was_held(lock)
    with lock:
        pass


@needs_fork
def test_an_event_that_another_thread_waits_for():
    event = renewed(threading.Event())
    thread = threading.Thread(target=event.wait)
    thread.start()
    with event._cond:  # as one has it that is about to wait
        done = ends(event.set)
    event.set()
    thread.join()
    assert done


X = np.ones((64, 2), np.float32)


def cache():
    one = sp.CachedFeatures(sp.FeatureStore(X), 200, np.ones(64))
    return one._counter._adding, lambda: (one.gather([1, 2]), one.counts, one.reset_counts())


def phases_of_a_loader():
    graph = sp.Graph.from_edge_index(np.random.default_rng(0).integers(0, 64, (2, 300)), num_nodes=64)
    loader = sp.BulkLoader(graph, np.arange(64), sp.GraphSAGE([3]), batch_size=10, prefetch=0)
    return loader.phases._lock, lambda: (next(iter(loader)), loader.seconds)


def contents_of_a_store():
    contents = Contents({"x": X})
    return contents._making, contents.numbers


def timeline():
    phases = Phases(timeline=Timeline(os.devnull))
    assert phases.timeline is not None

    def note():
        with phases.timed("new"):
            pass

    return phases.timeline._lock, note


def queue_of_batches():
    queue = BatchQueue(100, lambda *_: None)
    return queue._changed, lambda: (queue.put(0, np.zeros(4, np.uint8)), queue.close())


def reader_of_a_disk(tmp_path):
    np.save(tmp_path / "x.npy", X)
    features = sp.DiskFeatures(tmp_path / "x.npy", 0)
    return features._changing, lambda: (
        features.prefetch_hint([[1]]),
        features.gather([1]),
        features.prefetch_hint(None),
    )


@needs_fork
@pytest.mark.parametrize(
    "holder", [cache, phases_of_a_loader, contents_of_a_store, timeline, queue_of_batches, reader_of_a_disk]
)
def test_what_a_forked_process_uses(holder, request):
    """Forked in the moment in which a thread of its parent has the lock."""
    needs_path = holder.__code__.co_argcount > 0
    lock, use = holder(*[request.getfixturevalue("tmp_path")] * needs_path)
    with lock:
        assert ends(use)
    use()


@needs_fork
def test_forks_while_threads_gather():
    """20,000 by hand: see the program."""
    program = Path(__file__).with_name("many_forks.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program, "--forks", "200"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["hung"] == 0


PASS = """
import sys
import numpy as np
import spsample as sp

graph = sp.Graph.from_edge_index(np.random.default_rng(0).integers(0, 50, (2, 300)), num_nodes=50)
x = np.ones((50, 3), np.float32)
features = sp.CachedFeatures(sp.FeatureStore(x), 2000, np.arange(50), replacement="lookahead")
loader = sp.BulkLoader(graph, np.arange(50), sp.GraphSAGE([3]), batch_size=4, bulk_size=2, features=features)
before = set(sys.modules)
assert len(list(loader)) == 13
print(*(name for name in set(sys.modules) - before if name.startswith("spsample")))
"""


def test_the_threads_of_a_pass_import_nothing_of_the_package():
    """A process forked while a thread imports a module waits for ever where it needs it, too."""
    done = subprocess.run([sys.executable, "-c", PASS], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == []
