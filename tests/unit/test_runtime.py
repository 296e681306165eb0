"""Threads and kept memory of the compiled kernels, and both without them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import spsample as sp
from spsample.backends import available_backends, registry
from spsample.common import threads as runtime
from spsample.errors import DTypeError, InputError

needs_cpu = pytest.mark.skipif("cpu" not in available_backends(), reason="the compiled core is not built")


@needs_cpu
def test_threads():
    from spsample import _core

    before = _core.get_num_threads()
    try:
        sp.set_num_threads(np.int32(2))
        assert _core.get_num_threads() == 2
        sp.set_num_threads(1)
        assert _core.get_num_threads() == 1
    finally:
        _core.set_num_threads(before)


@needs_cpu
def test_the_pool_is_given_back():
    from spsample import _core

    sp.shuffle(300_000)
    sp.clear_pool()
    assert _core.pool_bytes() == 0


@pytest.mark.parametrize("threads", [0, -1, 2**31, True, 1.0, None, "2"])
def test_bad_numbers_of_threads(threads):
    with pytest.raises(InputError, match=r"^threads: got .*; expected an integer in \[1, 4096\]") as caught:
        sp.set_num_threads(threads)
    assert isinstance(caught.value, DTypeError) == (type(threads) is not int)


def test_without_the_compiled_core(monkeypatch):
    monkeypatch.setattr(runtime, "available_backends", lambda: ("reference",))
    sp.set_num_threads(3)
    sp.clear_pool()
    with pytest.raises(InputError):
        sp.set_num_threads(0)


def test_sampling_without_the_compiled_core_says_so_once(monkeypatch):
    monkeypatch.setattr(registry, "available_backends", lambda: ("reference",))
    registry._warn_of_no_core.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"no compiled core in .*spsample: sampling runs in plain NumPy") as caught:
        assert [registry.get_backend().name for _ in range(2)] == ["reference"] * 2
    assert len(caught) == 1
    sources = (Path(registry.__file__).parents[2] / "pyproject.toml").exists()
    assert ("Start Python in another folder" in str(caught[0].message)) == sources


def test_usable_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3}, raising=False)
    assert runtime.usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert runtime.usable_cores() == 1
