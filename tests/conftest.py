"""Markers, hypothesis profiles and fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]

MARKERS = {
    "slow": "takes more than some ten seconds",
    "realdata": "reads the real graphs of ../shared/data (or of the folder SPSAMPLE_DATA)",
    "sanitize": "also run against the core built with ASan and UBSan; must not need torch",
    "gpu": "needs a GPU and CuPy; skipped where there is none",
    "statistical": "compares sampled frequencies with an exact law",
    "needs(*names)": "skipped where the machine does not have one of them (tests/machine/needs.py)",
}

# Commands that came with this Python are found, as in an environment that is activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

# Before torch's OpenMP runtime is loaded: where tests share cores, threads that wait must not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A shell without job control lets what it runs in the background ignore Ctrl-C, and so would what tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("sanitize", parent=hypothesis.settings.get_profile("ci"), max_examples=25)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before fixtures, which may need the same."""
    from needs import require

    for mark in item.iter_markers("needs"):
        require(*mark.args)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `sanitize` has beside files that say so; .ci/sanitize collects the same ones."""
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        if path.startswith(("tests/conformance/test_cuda_emulated.py", "tests/unit/test_cpu_")):
            item.add_marker(pytest.mark.sanitize)


def pytest_collection_finish() -> None:
    """What modules hold is not searched by each collection of garbage: tests have many, and torch holds much."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real graphs; the test is skipped where it is missing."""
    path = Path(os.environ.get("SPSAMPLE_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no real graphs: {path} is missing (set SPSAMPLE_DATA to their folder)")
    return path


@pytest.fixture(params=["portable", "avx2", "avx512"])
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set of the compiled core that this machine has, in turn."""
    from spsample.common.threads import compiled_core

    core = compiled_core()
    if core is None:
        pytest.skip("needs the compiled core")
    before = core.instruction_set()
    if not core.set_instruction_set(request.param):
        pytest.skip(f"this machine lacks {request.param}")
    yield request.param
    core.set_instruction_set(before)
