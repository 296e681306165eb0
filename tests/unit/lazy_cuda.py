"""Streams, events and pinned memory without a GPU: work is done as late as their rules allow, so that haste shows.

A stream keeps what it is given until somebody waits for it. Memory of the device holds `NOTHING` before it is written.
A buffer that is written too early changes a copy that has not been done yet; a reader that does not wait finds nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

NOTHING = 0x55


class LazyEvent:
    """The work of a stream up to some point."""

    def __init__(self, stream: LazyStream) -> None:
        self.stream, self.place = stream, stream.given
        self.waits = 0

    def synchronize(self) -> None:
        """The host waits."""
        self.waits += 1
        self.stream.run_to(self.place)


class LazyStream:
    """Work that is not done yet."""

    def __init__(self, cuda: LazyCuda, name: str) -> None:
        self.cuda, self.name = cuda, name
        self.work: list[Any] = []
        self.given = self.done = 0

    def give(self, work: Any) -> None:
        with self.cuda.lock:
            self.work.append(work)
            self.given += 1

    def wait_event(self, event: LazyEvent) -> None:
        self.cuda.log.append(("wait_event", self.name))
        self.give(lambda: event.stream.run_to(event.place))

    def run_to(self, place: int) -> None:
        with self.cuda.lock:
            while self.done < place:
                self.done += 1
                self.work.pop(0)()

    def run(self) -> None:
        self.run_to(self.given)


class DeviceMemory(torch.Tensor):
    """What `torch.empty` gives on a GPU."""

    cuda: Any

    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> Any:
        assert non_blocking
        target = self.as_subclass(torch.Tensor)
        self.cuda.current_stream().give(lambda: target.copy_(source))
        return self

    def record_stream(self, stream: LazyStream) -> None:
        self.cuda.log.append(("record_stream", stream.name))


class LazyCuda:
    """In the place of `CudaCalls`.

    Attributes
    ----------
    log : list
        What streams were told in the thread that uses batches.
    buffers : list of int
        Bytes of each pinned buffer that was made.
    events : list
        All that were recorded.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.log: list[tuple[str, str]] = []
        self.buffers: list[int] = []
        self.events: list[LazyEvent] = []
        self.loop = LazyStream(self, "loop")
        self._here = threading.local()
        DeviceMemory.cuda = self

    def pinned(self, nbytes: int) -> torch.Tensor:
        self.buffers.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)

    def empty(self, nbytes: int) -> torch.Tensor:
        assert self.current_stream() is not self.loop, "the memory would be given out to another stream"
        return torch.full((nbytes,), NOTHING, dtype=torch.uint8).as_subclass(DeviceMemory)

    def new_stream(self) -> LazyStream:
        return LazyStream(self, "copies")

    def current_stream(self) -> LazyStream:
        return getattr(self._here, "stream", self.loop)

    @contextmanager
    def on(self, stream: LazyStream) -> Iterator[None]:
        before, self._here.stream = self.current_stream(), stream
        yield
        self._here.stream = before

    def recorded(self, stream: LazyStream) -> LazyEvent:
        event = LazyEvent(stream)
        self.events.append(event)
        return event
