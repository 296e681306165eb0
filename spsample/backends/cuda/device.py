"""Protocol of a GPU, as the backend needs it: arrays, a few primitives on them, and launches of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spsample.backends.cuda.sources import Variant

DeviceArray = Any
"""An array in memory that the GPU reads: a CuPy array."""

BLOCK = 256
MOST_BLOCKS = 1 << 16

CHUNK = 256
"""Consecutive items that a warp takes at a time (`kernels/cuda/chunks.h`)."""

WARP = 32

SHARE_OF_FREE = 4
"""Scratch that grows with a call is made for groups of batches or rows: at most a quarter of the free memory."""


class Kernel(NamedTuple):
    """A kernel by source and name; `lanes` threads do one piece of its work, `block` are in a block.

    A `block` kernel does one piece of work in a whole block: then `lanes` is `block`.
    """

    source: str
    name: str
    lanes: int = 1
    block: int = BLOCK

    def blocks(self, work: int) -> int:
        """Blocks of a launch for `work` pieces: kernels walk with a grid stride."""
        return min(-(-work * self.lanes // self.block), MOST_BLOCKS)


def chunk_kernel(source: str, name: str) -> Kernel:
    """A kernel whose pieces of work are chunks."""
    return Kernel(source, name, lanes=WARP)


def chunks_of(items: int) -> int:
    """Chunks of a number of items.

    Examples
    --------
    >>> [chunks_of(items) for items in (0, 1, 256, 257)]
    [0, 1, 1, 2]
    """
    return -(-items // CHUNK)


class Device(Protocol):
    """A GPU, or what stands in for one.

    A session (`on_stream`) is ordered by its caller's stream and behind those on other streams that ended before it;
    only `to_host`, `settle` and `finish` wait.
    """

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> DeviceArray:
        """An array with any content."""
        ...

    def zeros(self, shape: int | tuple[int, ...], dtype: Any) -> DeviceArray:
        """An array of zeros."""
        ...

    def full(self, shape: int | tuple[int, ...], value: Any, dtype: Any) -> DeviceArray:
        """An array of one value."""
        ...

    def concatenate(self, parts: Sequence[DeviceArray]) -> DeviceArray:
        """One array of several of one type."""
        ...

    def cumsum(self, values: DeviceArray, out: DeviceArray) -> None:
        """Inclusive prefix sums into `out`, in its type; unsigned sums wrap."""
        ...

    def sort(self, values: DeviceArray) -> DeviceArray:
        """Ascending."""
        ...

    def argsort(self, values: DeviceArray) -> DeviceArray:
        """Positions (int64) in ascending order of the values; stable."""
        ...

    def to_device(self, array: NDArray[Any]) -> DeviceArray:
        """A copy in the GPU's memory."""
        ...

    def to_host(self, array: DeviceArray) -> NDArray[Any]:
        """A copy in the host's memory; waits for all that was launched before."""
        ...

    def pinned(self, array: NDArray[Any]) -> DeviceArray:
        """A copy in the host's memory that kernels read over the bus."""
        ...

    def pinned_empty(self, shape: tuple[int, ...], dtype: Any) -> tuple[NDArray[Any], DeviceArray]:
        """Memory of the host with any content: as the host writes to it, and as kernels read it over the bus."""
        ...

    def is_on_host(self, array: DeviceArray) -> bool:
        """Return whether it lies in the host's memory, so that kernels read it over the bus."""
        ...

    def address(self, array: DeviceArray) -> int:
        """The address of the array's first element, as kernels see it."""
        ...

    def owns(self, array: Any) -> bool:
        """Return whether it is an array of this device."""
        ...

    def free_bytes(self) -> int:
        """Memory of the GPU that can still be had, that of the pool included."""
        ...

    def scratch_bytes(self) -> int:
        """Limit, in bytes, of scratch that grows with a call: a quarter of what is free now, or rather less."""
        ...

    def resident_warps(self) -> int:
        """Number of warps that the GPU holds at a time."""
        ...

    def on_stream(self) -> AbstractContextManager[Any]:
        """Around a caller's calls: all of them go to the stream that the caller works on."""
        ...

    def prepare(self, kernels: Sequence[Kernel], variant: Variant) -> None:
        """Make kernels that are launched next ready: those that are not compiled yet, at the same time."""
        ...

    def use(self, array: DeviceArray) -> DeviceArray:
        """The array, which the session's work, or its caller's on the same stream, is to read.

        Its memory is kept until that is done, wherever it was made and whoever drops it meanwhile.
        """
        ...

    def settle(self) -> None:
        """Wait until all that the session launched is done: then sessions that run meanwhile may read it."""
        ...

    def ready(self) -> Any:
        """A mark that `wait_for` takes: all that the session launched so far."""
        ...

    def wait_for(self, ready: Any) -> None:
        """Let the session wait, on the GPU, for what another one launched that may still be open."""
        ...

    def finish(self, ready: Any) -> None:
        """Let the host wait for what `ready` gave: then it may write to memory that was read there."""
        ...

    def launch(self, kernel: Kernel, variant: Variant, work: int, arguments: Sequence[Any]) -> None:
        """Run a kernel on `work` pieces of work; arguments are arrays, None (null) and integers of 64 bits."""
        ...


def integer(value: int | np.integer[Any] | bool) -> np.uint64:
    """As a parameter of a kernel: 64 bits, two's complement.

    Examples
    --------
    >>> int(integer(-1)) == 2**64 - 1
    True
    """
    return np.uint64(int(value) & 0xFFFF_FFFF_FFFF_FFFF)
