"""What of the backend `cuda` stands on CuPy and can be looked at without a GPU."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from spsample.backends.cuda.cupy_device import CupyDevice, StreamAddress, cupy_stream, torch_memory
from spsample.backends.cuda.device import SHARE_OF_FREE
from spsample.backends.cuda.free_memory import FreeMemory
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


def interrupted(place, first, then):
    """Call `first`; before instruction `place` of those of `streams.py` that it runs, call `then` in another thread.

    Returns whether there was such an instruction. The other thread may have to wait for the first one.
    """
    other, instructions = threading.Thread(target=then), 0

    def trace(frame, event, _):
        nonlocal instructions
        if not frame.f_code.co_filename.endswith("streams.py"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            instructions += 1
            if instructions == place:
                other.start()
                other.join(0.01)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        first()
    finally:
        sys.settrace(before)
        if instructions >= place:
            other.join()
    return instructions >= place


@pytest.mark.parametrize("is_nested", [False, True])
def test_sessions_that_end_at_the_same_time(is_nested):
    """Whichever instruction of a session another thread's comes at, a later session waits for both."""

    def begin(streams, *stack):
        with ExitStack() as sessions:
            for stream in stack:
                sessions.enter_context(streams.session(stream))

    place, goes_on = 1, True
    while goes_on:
        streams, (outer, one, two, last) = Streams(), map(ClockedStream, range(4))
        begin(streams, two)
        stack = [outer, one] if is_nested else [one]
        goes_on = interrupted(place, partial(begin, streams, *stack), partial(begin, streams, two))
        begin(streams, last)
        if goes_on:
            assert (last.clock[1], last.clock[2]) == (one.clock[1], two.clock[2]), place
        place += 1
    assert place > 50


class ClockedStream:
    """A stream that knows how much of each stream's work is done before its own; an event is work, too."""

    def __init__(self, ptr):
        self.ptr, self.clock = ptr, Counter()

    def record(self):
        self.clock[self.ptr] += 1
        return Counter(self.clock)

    def wait_event(self, event):
        self.clock |= event


@pytest.mark.parametrize(
    "made",
    [
        lambda device, values: device.empty(len(values), np.int64),
        lambda device, values: device.zeros(len(values), np.int64),
        lambda device, values: device.full(len(values), 7, np.int64),
        lambda device, values: device.concatenate([values[:40], values[40:]]),
        lambda device, values: device.sort(values),
        lambda device, values: device.argsort(values),
        lambda device, values: device.to_device(values),
    ],
)
def test_what_a_session_takes_is_counted(made):
    device = CupyDevice.__new__(CupyDevice)
    device._cupy, device._free_memory, device.use = np, FreeMemory(lambda: 8000), lambda array: array
    assert device.scratch_bytes() == 8000 // SHARE_OF_FREE
    assert made(device, np.arange(100)).nbytes == 800
    assert device.scratch_bytes() == 7200 // SHARE_OF_FREE


class Torch:
    """Stands in for torch with GPUs: the streams that it is on, one after another."""

    def __init__(self, *streams):
        self.streams = list(streams)
        self.cuda = SimpleNamespace(is_initialized=lambda: True, is_available=lambda: False)
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: self.streams[0])


class EnteredStream(CallersStream):
    """A stream of CuPy: how often it was made the current one."""

    entered = 0

    def __enter__(self):
        self.entered += 1

    def __exit__(self, *error):
        pass


def test_a_session_within_another_is_on_torchs_stream(monkeypatch):
    """On the same one it is part of the other; torch may have gone to another since."""
    torch, made = Torch(7), {7: EnteredStream(7), 9: EnteredStream(9)}
    monkeypatch.setitem(sys.modules, "torch", torch)
    streams = SimpleNamespace(from_external=lambda stream: made[stream.address])
    device = CupyDevice.__new__(CupyDevice)
    device._cupy = SimpleNamespace(cuda=SimpleNamespace(Stream=streams))
    device._device, device._allocator = CurrentGpu(), None
    device._streams, device._free_memory = Streams(), FreeMemory(lambda: 8000)
    with device.on_stream():
        left = device._free_memory.bytes()
        device._free_memory.took(100)
        with device.on_stream():
            assert device._streams.current is made[7]
            assert device._free_memory.bytes() == left - 100
        torch.streams[0] = 9
        with device.on_stream():
            assert device._streams.current is made[9]
        assert device._streams.current is made[7]
    assert (made[7].entered, made[9].entered) == (1, 1)
    assert made[9].waited == [(7, 1)]
    assert made[7].waited == [(9, 1)]


def test_the_first_session_is_on_torchs_stream(monkeypatch):
    """Torch begins to use the GPU where its pool is shared: from then on it has a stream."""
    torch, made = Torch(7), {7: EnteredStream(7)}
    torch.cuda.is_initialized = lambda: device._allocator is not None
    monkeypatch.setitem(sys.modules, "torch", torch)
    device = CupyDevice.__new__(CupyDevice)
    device._cupy = SimpleNamespace(
        cuda=SimpleNamespace(Stream=SimpleNamespace(from_external=lambda stream: made[stream.address]))
    )
    device._device, device._allocator = CurrentGpu(), None
    device._share_torch_pool = lambda: setattr(device, "_allocator", "torch's")
    device._streams, device._free_memory = Streams(), FreeMemory(lambda: 8000)
    with device.on_stream():
        assert device._streams.current is made[7]


class CurrentGpu:
    """Stands in for CuPy's device, which its sessions make the current one."""

    id = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass
