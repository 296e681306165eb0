"""The streams that callers work on, kept in one order: what is made on one and read on another is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class CudaStream(Protocol):
    """A queue of work of a GPU, as CuPy has it."""

    ptr: int

    def record(self) -> Any:
        """An event: all that was given to the stream so far is done."""
        ...

    def wait_event(self, event: Any) -> None:
        """Let what the stream is given from now on wait for an event."""
        ...


class Memory(Protocol):
    """A piece of a GPU's memory that a pool gives out anew once it is free: at once to the stream it was made on."""

    made_on: int
    """The stream for which it was taken from the pool."""

    def keep_for(self, stream: Any) -> None:
        """Once it is free, do not give it out before the stream has done what it was given until then."""
        ...


class Streams:
    """Sessions of one GPU: in each, a thread works on the stream that its caller is on.

    A session waits, on the GPU, for those on other streams that ended before it began. So what one of them made, such
    as a graph, features or a bulk, can be used in another without a word. What a session shows to others while it is
    still open they wait for by `ready` and `wait_for`.
    """

    def __init__(self) -> None:
        self._ended: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._here = threading.local()

    @property
    def current(self) -> Any:
        """The stream of this thread's session; None outside of one."""
        return getattr(self._here, "stream", None)

    @contextmanager
    def session(self, stream: CudaStream) -> Iterator[None]:
        """Around the calls of a caller who is on a stream; one within another on the same stream is part of it."""
        outer = self.current
        if outer is not None and outer.ptr == stream.ptr:
            yield
            return
        waited = self._wait_for_others(stream)
        if outer is not None:
            stream.wait_event(outer.record())
        self._here.stream = stream
        try:
            yield
        finally:
            self._here.stream = outer
            ended = self._end(stream, waited)
            if outer is not None:
                outer.wait_event(ended)

    def use(self, memory: Memory) -> None:
        """Keep memory that the session's work reads or writes, where it belongs to another stream."""
        stream = self.current
        if stream is not None and memory.made_on != stream.ptr:
            memory.keep_for(stream)

    def ready(self) -> tuple[int, Any] | None:
        """A mark that `wait_for` takes: all that the session has given its stream so far; None outside of one."""
        stream = self.current
        return None if stream is None else (stream.ptr, stream.record())

    def wait_for(self, ready: tuple[int, Any] | None) -> None:
        """Let the session wait for what another one, that may still be open, had given its stream."""
        stream = self.current
        if stream is not None and ready is not None and ready[0] != stream.ptr:
            stream.wait_event(ready[1])

    def _wait_for_others(self, stream: CudaStream) -> dict[int, Any]:
        """The events that the stream waits for now."""
        with self._lock:
            others = {number: event for number, event in self._ended.items() if number != stream.ptr}
        for event in others.values():
            stream.wait_event(event)
        return others

    def _end(self, stream: CudaStream, waited: dict[int, Any]) -> Any:
        """The stream's event, which stands for those that it waited for, too: they need not be kept."""
        with self._lock:
            self._ended[stream.ptr] = ended = stream.record()
            for number, event in waited.items():
                if self._ended.get(number) is event:
                    del self._ended[number]
        return ended
