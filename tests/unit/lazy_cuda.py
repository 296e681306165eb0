"""Streams, events and pinned memory without a GPU: work is done as late as their rules allow, so that haste shows.

A stream keeps what it is given until somebody waits for it. Memory of the device holds `NOTHING` before it is written.
A buffer that is written too early changes a copy that has not been done yet; a reader that does not wait finds nothing.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
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
        self.cuda.current_stream().give(self.cuda.copy_of(source, self.as_subclass(torch.Tensor)))
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

    def copy_of(self, source: torch.Tensor, target: torch.Tensor) -> Any:
        """The work of a copy."""
        return lambda: target.copy_(source)

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


class Block:
    """Pinned memory that is given out anew once it is let go of and the copies are over that its pool was told of."""

    def __init__(self, nbytes: int) -> None:
        self.memory = np.empty(nbytes, np.uint8)
        self.begin = self.memory.__array_interface__["data"][0]
        self.copies = 0
        self.is_out = False
        self.storage: int | None = None

    def give_out(self, nbytes: int) -> torch.Tensor:
        array = self.memory[:nbytes]  # which the storage of the tensor keeps
        weakref.finalize(array, self.let_go)
        tensor = torch.from_numpy(array)
        self.storage, self.is_out = tensor.untyped_storage()._cdata, True
        return tensor

    def let_go(self) -> None:
        self.is_out = False
        self.spoil()

    def spoil(self) -> None:
        """Somebody else writes to it, as soon as it may be given out."""
        if not self.is_out and not self.copies:
            self.memory.fill(NOTHING)


class PooledCuda(LazyCuda):
    """With torch's pool of pinned memory, which learns of a copy by the storage of the tensor that is copied.

    A copy knows an address only, and keeps nothing alive.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Block] = []

    def pinned(self, nbytes: int) -> torch.Tensor:
        with self.lock:
            self.buffers.append(nbytes)
            size = 1 << max(nbytes - 1, 0).bit_length()
            free = (one for one in self.blocks if not one.is_out and not one.copies and len(one.memory) == size)
            block = next(free, None) or Block(size)
            if block not in self.blocks:
                self.blocks.append(block)
            return block.give_out(nbytes)

    def copy_of(self, source: torch.Tensor, target: torch.Tensor) -> Any:
        address, nbytes, storage = source.data_ptr(), len(source), source.untyped_storage()._cdata
        if not nbytes:
            return lambda: None
        block = next(one for one in self.blocks if one.begin <= address < one.begin + len(one.memory))
        is_told = block.is_out and block.storage == storage
        block.copies += is_told

        def copy() -> None:
            place = address - block.begin
            target.copy_(torch.from_numpy(block.memory[place : place + nbytes]))
            block.copies -= is_told
            block.spoil()

        return copy
