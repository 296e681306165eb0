"""The cpu backend within its process: flushed subnormal numbers, forks, Ctrl-C, numbers of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import spsample as sp
from spsample.backends import Matrix, QuantisationRule, get_backend
from spsample.backends.arithmetic import default_float_environment
from spsample.sparse import normalize_rows, spgemm

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

SMALLEST = {np.float32: 2.0**-149, np.float64: 2.0**-1074}
SAMPLERS = [
    sp.GraphSAGE([3, 2]),
    sp.GraphSAGE([3], replace=True),
    sp.LADIES([60]),
    sp.LADIES([60], law="squared_count"),
    sp.LADIES([60], values="reference", normalize_rows=True),
    sp.LADIES([60], replace=True),
    sp.FastGCN([60]),
]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = core.get_num_threads()
    core.set_num_threads(request.param)
    yield request.param
    core.set_num_threads(before)


# --- subnormal numbers ----------------------------------------------------------------------------


def flushed(compute: Callable[[], Any]) -> Any:
    """What `compute` returns while this thread flushes subnormal numbers to zero."""
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    try:
        before = is_flushing()
        result = compute()
        after = is_flushing()
    finally:
        torch.set_flush_denormal(False)
    assert before
    assert after, "the caller's environment must come back"
    assert not is_flushing()
    return result


def is_flushing() -> bool:
    return bool(np.float32(2.0**-149) * np.ones(1, np.float32) == 0)


@cache
def subnormal_edges(dtype: type[np.floating], num_nodes: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Edges, and their weights, of which most are subnormal, some 0 and some normal."""
    rng = np.random.default_rng(7)
    edges = 8 * num_nodes
    weights = (rng.integers(0, 1000, edges) * np.float64(SMALLEST[dtype])).astype(dtype)
    weights[::97] = 2 * np.finfo(dtype).tiny
    return rng.integers(0, num_nodes, (2, edges)), weights


def sampled_bits(sampler: sp.Sampler, dtype: type[np.floating], num_nodes: int, backend: str) -> list[bytes | None]:
    edges, weights = subnormal_edges(dtype, num_nodes)
    graph = sp.Graph.from_edge_index(edges, num_nodes=num_nodes, edge_weight=weights)
    bulk = sp.bulk_sample(graph, np.arange(num_nodes), sampler, batch_size=200, backend=backend)
    arrays = [a for layer in bulk.layers for a in (layer.src, layer.indptr, layer.indices, layer.data)]
    return [None if a is None else a.tobytes() for a in arrays]


@pytest.mark.parametrize("dtype", SMALLEST)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_flushing_changes_no_sample(sampler: sp.Sampler, dtype: type[np.floating], threads: int) -> None:
    expected = sampled_bits(sampler, dtype, 2500, "cpu")
    assert flushed(lambda: sampled_bits(sampler, dtype, 2500, "cpu")) == expected


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_flushing_changes_no_sample_of_the_reference(sampler: sp.Sampler) -> None:
    expected = sampled_bits(sampler, np.float64, 60, "cpu")
    assert sampled_bits(sampler, np.float64, 60, "reference") == expected
    assert flushed(lambda: sampled_bits(sampler, np.float64, 60, "reference")) == expected


def test_flushing_changes_no_explicit_probabilities() -> None:
    weights = np.arange(6) * 5e-324
    W = sp.CSRMatrix(np.array([0, 6]), np.arange(6, dtype=np.int32), weights, (1, 6))
    numerators = normalize_rows(W).matrix.numerators.tolist()
    assert len(numerators) == 5
    assert flushed(lambda: normalize_rows(W).matrix.numerators.tolist()) == numerators


@pytest.mark.parametrize("kind", ["row", "sym"])
def test_flushing_changes_no_normalised_graph(kind: str) -> None:
    edges, weights = subnormal_edges(np.float64, 60)
    graph = sp.Graph.from_edge_index(edges, num_nodes=60, edge_weight=weights)

    def normalized() -> bytes:
        data = graph.normalized(kind).data
        assert data is not None
        return data.tobytes()

    expected = normalized()
    assert flushed(normalized) == expected


def test_the_environment_is_restored_after_an_error() -> None:
    inside = []

    @default_float_environment()
    def failing() -> None:
        inside.append(is_flushing())
        raise RuntimeError

    def caught() -> None:
        with pytest.raises(RuntimeError):
            failing()

    flushed(caught)
    assert inside == [False]


@pytest.mark.parametrize("dtype", SMALLEST)
def test_quantised_from_bits(dtype: type[np.floating]) -> None:
    """Multiples of the smallest number of either type are integers under the exponent that makes it 1."""
    integers = np.array([0, 1, 2, 3, 5, 1000, 2**20 + 1])
    weights = (integers * np.float64(SMALLEST[dtype])).astype(dtype)
    rule = QuantisationRule(np.array([1 - int(np.frexp(SMALLEST[dtype])[1])]), 1, 1)
    A = Matrix(np.array([0, *[7] * 7]), np.arange(7, dtype=np.int32), weights)

    def totals() -> list[int]:
        return [int(n) for n in get_backend("cpu").column_totals(A, rule)]

    assert totals() == integers.tolist()
    assert flushed(totals) == integers.tolist()
    assert get_backend("cpu").row_exponents(A)[0] == np.frexp(weights[-1])[1]


# --- forks, Ctrl-C, threads: in a process of their own --------------------------------------------


def run_python(code: str, seconds: float = 300) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=seconds, env=environment)


SAMPLE = """
import os, signal, sys, time
import numpy as np
import spsample as sp
from spsample import _core as core

rng = np.random.default_rng(0)
n = 5000
graph = sp.Graph.from_edge_index(rng.integers(0, n, (2, 10 * n)), num_nodes=n)

def sample(first_batch=0):
    bulk = sp.bulk_sample(graph, np.arange(n), sp.GraphSAGE([5, 5]), batch_size=250, first_batch=first_batch)
    return b"".join(layer.indices.tobytes() + layer.src.tobytes() for layer in bulk.layers)

core.set_num_threads(2)
"""

FORK = """
expected = sample()
pid = os.fork()
if pid == 0:
    same = sample() == expected and core.get_num_threads() == 1
    core.set_num_threads(2)
    os._exit(0 if same and sample() == expected else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert core.get_num_threads() == 2 and sample() == expected
"""

FORK_WHILE_THREADS_ALLOCATE = """
import threading
stop = False

def churn():
    while not stop:
        core.philox(np.zeros((2**15, 4), np.uint32), 1, 2)

thread = threading.Thread(target=churn)
thread.start()
expected = sample()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if sample() == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
stop = True
thread.join()
"""

FORK_WHILE_A_THREAD_COMPUTES_WHAT_IS_KEPT = """
import threading
from types import SimpleNamespace
from spsample.sampling.bulk import MiniBatch
from spsample.sparse.local import KeptArrays

under_way, go_on = threading.Barrier(3), threading.Event()

class Slow:
    def __iter__(self):  # layers of a bulk
        return iter(self.column_totals())

    def column_totals(self, *_):
        under_way.wait()
        go_on.wait()
        return np.zeros(0, np.uint64)

def column_norms():
    matrix = SimpleNamespace(indptr=[0], indices=[])
    return len(KeptArrays(matrix, Slow(), "unweighted").cumulative)

slow = [lambda: MiniBatch(SimpleNamespace(layers=Slow()), 0).layers, column_norms]
threads = [threading.Thread(target=body, daemon=True) for body in slow]
for thread in threads:
    thread.start()
under_way.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    bulk = sp.bulk_sample(graph, [1], sp.FastGCN([5]), batch_size=1)
    os._exit(len(bulk[0].layers) - 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
go_on.set()
"""

MULTIPROCESSING = """
import multiprocessing
expected = [sample(i) for i in range(4)]
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(sample, range(4)) == expected
"""

INTERRUPTED = """
cumulative = np.arange(1, 9, dtype=np.uint64) << 40
batch_ids = np.arange(4000)

def long_call():
    core.draw_shared(cumulative, core.shared_guide(cumulative), batch_ids, 1, 2, 0, 2**20, True)  # minutes

signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    long_call()
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("was not interrupted")
assert sample() == sample()
"""

HANDLED = """
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(sample()))  # samples in the middle of a call
signal.setitimer(signal.ITIMER_REAL, 0.2)
cumulative = np.arange(1, 9, dtype=np.uint64) << 40
guide = core.shared_guide(cumulative)
sizes = core.draw_shared(cumulative, guide, np.arange(64), 1, 2, 0, 2**20, True)[2].reshape(64, 8).sum(axis=1)
assert sizes.tolist() == [2**20] * 64
assert seen == [sample()]
"""

THREADS_OF_THREADS = """
import threading
core.set_num_threads(1)
found = []
thread = threading.Thread(target=lambda: found.append(core.get_num_threads()))
thread.start()
thread.join()
assert (core.get_num_threads(), found) == (1, [2])  # OMP_NUM_THREADS
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@needs_fork
@pytest.mark.parametrize(
    "code", [FORK, FORK_WHILE_THREADS_ALLOCATE, FORK_WHILE_A_THREAD_COMPUTES_WHAT_IS_KEPT, MULTIPROCESSING]
)
def test_a_forked_process_samples(code: str) -> None:
    run_python(SAMPLE + code)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no interval timer")
@pytest.mark.parametrize("code", [INTERRUPTED, HANDLED])
def test_signals_are_handled_during_a_call(code: str) -> None:
    run_python(SAMPLE + code)


def test_number_of_threads_is_of_the_calling_thread() -> None:
    run_python(SAMPLE + THREADS_OF_THREADS)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_products_keep_subnormal_numbers(backend: str) -> None:
    indptr, indices = np.array([0, 1, 2]), np.array([0, 1], np.int32)
    A = sp.CSRMatrix(indptr, indices, np.array([1e-310, 2.0]), (2, 2))
    B = sp.CSRMatrix(indptr, indices, np.array([2.0, 3e-320]), (2, 2))
    expected = [2e-310, 6e-320]
    assert spgemm(A, B, backend=backend).data.tolist() == expected
    assert flushed(lambda: spgemm(A, B, backend=backend).data.view(np.int64)).view(np.float64).tolist() == expected
