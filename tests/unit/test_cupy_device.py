"""What of the backend `cuda` stands on CuPy and can be looked at without a GPU."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from spsample.backends.cuda.cupy_device import StreamAddress, cupy_stream, torch_memory
from spsample.backends.cuda.streams import Streams


def test_a_stream_of_torch_is_taken_without_a_warning():
    """CuPy 14 deprecates `ExternalStream`; the tests make spsample's warnings errors."""
    cupy = pytest.importorskip("cupy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cupy_stream(cupy, 64).ptr == 64
        assert cupy_stream(cupy, 0).ptr == 0


def test_a_stream_speaks_the_protocol():
    assert StreamAddress(7).__cuda_stream__() == (0, 7)


class Tensor:
    """Stands in for one of torch on a GPU: so many bytes at an address."""

    device = SimpleNamespace(index=0)

    def __init__(self, size):
        self.size, self.kept_for = size, []

    def data_ptr(self):
        return 4096 if self.size else 0

    def numel(self):
        return self.size

    def record_stream(self, stream):
        self.kept_for.append(stream)


@pytest.mark.parametrize("size", [0, 64])
def test_memory_of_torch_knows_its_stream_and_is_kept_for_others(monkeypatch, size):
    cupy = pytest.importorskip("cupy")
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda address, device: (address, device))
    tensor = Tensor(size)
    pointer = cupy.cuda.MemoryPointer(torch_memory(cupy)(tensor, 7), 0)
    streams = Streams()
    for here in (CallersStream(7), CallersStream(9)):
        with streams.session(here):
            streams.use(pointer.mem)
    assert pointer.mem.size == size
    assert tensor.kept_for == [(9, Tensor.device)]


class CallersStream:
    """A stream as `Streams` sees it: what it waited for."""

    def __init__(self, ptr):
        self.ptr, self.given, self.waited = ptr, 0, []

    def record(self):
        self.given += 1
        return self.ptr, self.given

    def wait_event(self, event):
        self.waited.append(event)


def test_sessions_wait_for_those_of_other_streams():
    streams, one, two, three = Streams(), *map(CallersStream, (1, 2, 3))
    with streams.session(one), streams.session(one):
        assert streams.current is one
    with streams.session(two):
        pass
    with streams.session(three):
        assert streams.wait_for(None) is None
    assert (one.waited, two.waited, three.waited) == ([], [(1, 1)], [(2, 1)])  # what two waited for is in its event
    with streams.session(one):
        ready = streams.ready()
        with streams.session(two):
            streams.wait_for(ready)
    assert two.waited[1:] == [(3, 1), (1, 3), (1, 2)]  # (1, 3): what is around it
    assert one.waited == [(3, 1), (2, 2)]  # before, and for the session within
    assert streams.current is streams.ready() is None
