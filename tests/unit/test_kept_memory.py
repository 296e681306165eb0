"""Memory kept from step to step, and given back."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from spsample.common.threads import compiled_core
from spsample.training import keep_memory

PROGRAM = """
import resource, threading, torch
from spsample.training import keep_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    blocks = [torch.ones(4_000_000 + 100_000 * i) for i in range(4)]
    return sum(float(block[0]) for block in blocks)

torch.set_num_threads(1)
step()
before = resident()
with keep_memory():
    with keep_memory():
        for _ in range(40):  # the heap's layout settles: small blocks come to lie between large ones
            step()
    count = faults()
    for _ in range(5):
        step()
    count = faults() - count
    held = resident() - before
print(count, held, resident() - before)
"""


def needs_glibc() -> None:
    core = compiled_core()
    if core is None or not core.keeps_freed or sys.platform != "linux":
        pytest.skip("needs the compiled core and glibc")


def run(**environment: str) -> list[int]:
    """Faults of five steps, bytes held within, and bytes held afterwards."""
    import os

    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUN"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


def test_steps_fault_no_more_and_memory_goes_back_afterwards() -> None:
    needs_glibc()
    faults, held, left = run()
    assert faults < 100
    assert held > 32 << 20
    assert left < 16 << 20


def test_settings_of_the_environment_are_left_alone() -> None:
    needs_glibc()
    faults, _, _ = run(MALLOC_MMAP_THRESHOLD_="131072")
    assert faults > 1000


def test_overlapping_uses_of_several_threads() -> None:
    inside, leave = threading.Barrier(3), threading.Event()

    def use() -> None:
        with keep_memory():
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    with keep_memory():
        leave.set()
        for thread in threads:
            thread.join()


FORKS = """
import os, signal, threading
from spsample.training import keep_memory

stop = threading.Event()

def use():
    while not stop.is_set():
        with keep_memory():
            pass

thread = threading.Thread(target=use)
thread.start()
statuses = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        with keep_memory():
            pass
        os._exit(0)
    statuses.append(os.waitpid(child, 0)[1])
    if statuses[-1] != 0:
        break
stop.set()
thread.join()
print(statuses)
"""


def test_processes_forked_while_another_thread_begins_or_ends_it() -> None:
    needs_glibc()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == str([0] * 20).split()


def test_an_error_ends_it_too() -> None:
    needs_glibc()
    with pytest.raises(KeyError), keep_memory():
        raise KeyError
    with pytest.raises(ValueError, match="more often"):
        compiled_core().release_freed()
