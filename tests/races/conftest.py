"""Tests that ThreadSanitizer watches (`make cuda-races`): every kernel must be given work for several blocks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import races
from emulated_device import EmulatedDevice

from spsample.backends.cuda.sources import source_names, source_path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / room) for room in ("conformance", "cuda")]

collect_ignore_glob = [] if races.watched() else ["test_*.py"]

KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(.*?\)\s+)?(\w+)\(')


@pytest.fixture(autouse=True)
def a_device_of_several_blocks(monkeypatch):
    """As many warps as the largest blocks have that run beside each other."""
    monkeypatch.setattr(EmulatedDevice, "resident_warps", lambda _: 16 * races.BLOCKS)


def pytest_configure(config):
    if races.watched():
        config.pluginmanager.register(Coverage(config))


class Coverage:
    """What the processes of a run have launched, and at its end which kernels had work for one block at most."""

    def __init__(self, config):
        self._config = config
        self._widest = {}

    def pytest_testnodedown(self, node, error):
        if error is None:  # a process that died has told nothing, and xdist says so
            self._add(node.workeroutput["widest"])

    def _add(self, widest):
        for name, blocks in widest.items():
            self._widest[name] = max(blocks, self._widest.get(name, 0))

    def pytest_sessionfinish(self, session):
        self._add(races.watch().widest)
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["widest"] = self._widest
        elif self._narrow() and session.testsfailed == 0 and not session.shouldfail:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        narrow = self._narrow()
        terminalreporter.write_line(f"{len(self._widest)} kernels were watched")
        if narrow:
            terminalreporter.write_line(f"without work for two blocks: {', '.join(narrow)}", red=True)

    def _narrow(self):
        if self._config.option.keyword:  # some of the tests were asked for
            return []
        return [name for name in kernel_names() if self._widest.get(name, 0) < 2]


def kernel_names():
    """All of kernels/cuda, each as source.kernel."""
    return [f"{source}.{name}" for source in source_names() for name in KERNEL.findall(source_path(source).read_text())]
