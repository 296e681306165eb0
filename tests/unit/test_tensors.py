"""Work on a stream of a GPU leaves the GPU that the thread was on alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from spsample.backends.tensors import on_stream


def test_a_stream_is_entered_on_its_gpu_and_left_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.cuda.stream` sets the stream of the thread's GPU when it is left: that has to be the stream's own."""
    current = {"device": 0}
    touched: list[tuple[str, int]] = []

    @contextmanager
    def device(number: int) -> Iterator[None]:
        before, current["device"] = current["device"], number
        yield
        current["device"] = before  # torch does not open a context for it

    @contextmanager
    def stream(given: Any) -> Iterator[None]:
        touched.append(("enter", current["device"]))
        yield
        touched.append(("leave", current["device"]))

    torch = SimpleNamespace(cuda=SimpleNamespace(device=device, stream=stream))
    monkeypatch.setitem(sys.modules, "torch", torch)
    with on_stream(SimpleNamespace(device=3)):
        assert current["device"] == 3
    assert touched == [("enter", 3), ("leave", 3)]
    assert current["device"] == 0
