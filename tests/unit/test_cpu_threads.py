"""The threads of the compiled core: how they wait, and that many callers can share them."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import spsample as sp

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

SAMPLE = """
import sys, threading, time
import numpy as np
import spsample as sp
from spsample import _core
rng = np.random.default_rng(0)
graph = sp.Graph.from_edge_index(rng.integers(0, 20_000, (2, 400_000)), num_nodes=20_000)
def sample():
    return sp.bulk_sample(graph, np.arange(4096), sp.GraphSAGE([10, 10]), batch_size=512)
"""
IDLE = """
from pathlib import Path
def awake():
    threads = [task for task in Path("/proc/self/task").iterdir() if int(task.name) != threading.get_native_id()]
    return [task for task in threads if (task / "stat").read_text().rpartition(")")[2].split()[0] != "S"]
for _ in range(20):
    sample()
    until = time.monotonic() + 20
    while awake() and time.monotonic() < until:
        time.sleep(0.01)
    print(len(awake()))
"""
LIBRARIES = """
sample()
print(*{line.split("/")[-1].strip() for line in open("/proc/self/maps") if "omp" in line})
"""


def run(code: str, before: str = "", **variables: str) -> str:
    unset = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", f"{before}\n{SAMPLE}{code}"],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no /proc")
def test_threads_without_work_sleep_with_nothing_set_in_the_environment():
    assert run(IDLE, OMP_NUM_THREADS="2").split() == ["0"] * 20


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="no /proc")
def test_no_openmp_library_is_loaded():
    assert run(LIBRARIES) == ""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OMP_NUM_THREADS": "3"}, "3"),
        ({"OMP_NUM_THREADS": "2,4"}, "2"),
        ({"OMP_NUM_THREADS": "3", "OMP_THREAD_LIMIT": "2"}, "2"),
        ({"OMP_NUM_THREADS": "none"}, None),
        ({"OMP_NUM_THREADS": "0"}, None),
        ({}, None),
    ],
)
def test_number_of_threads(variables, expected):
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert run("print(_core.get_num_threads())", **variables) == (expected or str(usable))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
def test_a_bound_process_has_a_thread_per_processor_that_it_may_use():
    bound = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    assert run("print(_core.get_num_threads())", before=bound) == "1"


def test_many_callers_share_the_threads():
    rng = np.random.default_rng(1)
    graph = sp.Graph.from_edge_index(rng.integers(0, 5_000, (2, 200_000)), num_nodes=5_000)
    samplers = [sp.GraphSAGE([15, 10]), sp.LADIES([300, 300]), sp.FastGCN([200])]

    def digest(job: int) -> bytes:
        core.set_num_threads(1 + job % 4)
        bulk = sp.bulk_sample(graph, np.arange(2_000), samplers[job % 3], batch_size=500, epoch=job // 3)
        return b"".join(np.asarray(layer.adj.indices).tobytes() for batch in bulk for layer in batch.layers)

    jobs = range(36)
    expected = [digest(job) for job in jobs]
    core.set_num_threads(2)
    with ThreadPoolExecutor(6) as callers:
        assert list(callers.map(digest, jobs)) == expected
