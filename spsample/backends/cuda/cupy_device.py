"""A GPU through CuPy: memory from the pool that torch uses where torch is loaded, kernels compiled by NVRTC."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends.cuda.device import SHARE_OF_FREE, DeviceArray, Kernel, integer
from spsample.backends.cuda.free_memory import FreeMemory
from spsample.backends.cuda.sources import Variant, cubins
from spsample.backends.cuda.streams import Streams
from spsample.errors import BackendError, require_module

LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID")
"""Variables by which launchers give a process its rank on its machine: torchrun, Open MPI, MPICH, Cray's and Slurm."""

LEAST_CAPABILITY = 80
"""Kernels sum over a warp by instructions that older GPUs lack."""

MEMORY_OF_HOST = 1
"""`cudaMemoryTypeHost`."""

LARGE_BYTES = 1 << 25
"""Larger arrays are copied from where they are: CuPy would keep as much pinned memory, or up to twice as much."""


class CupyDevice:
    """One GPU; see `Device`: torch's current one where torch uses GPUs, else that of this rank among its machine's.

    Raises
    ------
    MissingDependencyError
        If CuPy is not installed.
    BackendError
        If there is no GPU, or none that CuPy and the kernels can use.
    """

    def __init__(self) -> None:
        self._cupy = require_module("cupy", needed_for="backend 'cuda'", extra="gpu", install=None)
        if not self._cupy.cuda.is_available():
            raise BackendError(
                "backend 'cuda' needs a GPU, and CuPy finds none (`spsample doctor` says what is there)."
            )
        self._device = self._cupy.cuda.Device(gpu_number(self._cupy.cuda.runtime.getDeviceCount()))
        if int(self._device.compute_capability) < LEAST_CAPABILITY:
            raise BackendError(
                f"backend 'cuda' needs a GPU of compute capability 8.0 or more (Ampere), and {self.arch} is less."
            )
        self._functions: dict[tuple[str, str, Variant], Any] = {}
        self._streams = Streams()
        self._free_memory = FreeMemory(self.free_bytes)
        self._allocator: Any = None
        self._share_torch_pool()

    @property
    def arch(self) -> str:
        """Architecture to compile for, such as "sm_90"."""
        return f"sm_{self._device.compute_capability}"

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> DeviceArray:
        return self._taken(self._cupy.empty(shape, dtype))

    def zeros(self, shape: int | tuple[int, ...], dtype: Any) -> DeviceArray:
        return self._taken(self._cupy.zeros(shape, dtype))

    def full(self, shape: int | tuple[int, ...], value: Any, dtype: Any) -> DeviceArray:
        return self._taken(self._cupy.full(shape, value, dtype))

    def concatenate(self, parts: Sequence[DeviceArray]) -> DeviceArray:
        return self._taken(self._cupy.concatenate([self.use(part) for part in parts]))

    def cumsum(self, values: DeviceArray, out: DeviceArray) -> None:
        if len(values):
            self._cupy.cumsum(self.use(values), dtype=out.dtype, out=out)

    def sort(self, values: DeviceArray) -> DeviceArray:
        return self._taken(self._cupy.sort(self.use(values)))

    def argsort(self, values: DeviceArray) -> DeviceArray:
        return self._taken(self._cupy.argsort(self.use(values)))

    def to_device(self, array: NDArray[Any]) -> DeviceArray:
        if array.nbytes < LARGE_BYTES:
            return self._taken(self._cupy.asarray(array))
        copied = self.empty(array.shape, array.dtype)
        copied.set(array)
        self._cupy.cuda.get_current_stream().synchronize()  # the array may be the caller's to change or to free
        return copied

    def to_host(self, array: DeviceArray) -> NDArray[Any]:
        host: NDArray[Any] = self._cupy.asnumpy(self.use(array))
        return host

    def pinned(self, array: NDArray[Any]) -> DeviceArray:
        host, read = self.pinned_empty(array.shape, array.dtype)
        host[...] = array
        return read

    def pinned_empty(self, shape: tuple[int, ...], dtype: Any) -> tuple[NDArray[Any], DeviceArray]:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        cuda = self._cupy.cuda  # not of its pool, which takes the next power of two and keeps it
        try:
            memory = cuda.PinnedMemoryPointer(cuda.PinnedMemory(max(size, 1)), 0)
        except cuda.runtime.CUDARuntimeError as error:
            raise MemoryError(f"{size} bytes of page-locked memory: {error}") from error
        host = np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)
        unowned = cuda.UnownedMemory(memory.ptr, max(size, 1), memory)
        return host, self._cupy.ndarray(shape, dtype, cuda.MemoryPointer(unowned, 0))

    def is_on_host(self, array: DeviceArray) -> bool:
        if not array.size:
            return False
        attributes = self._cupy.cuda.runtime.pointerGetAttributes(array.data.ptr)
        return int(attributes.type) == MEMORY_OF_HOST

    def address(self, array: DeviceArray) -> int:
        return int(array.data.ptr)

    def owns(self, array: Any) -> bool:
        return isinstance(array, self._cupy.ndarray)

    def free_bytes(self) -> int:
        free, _ = self._device.mem_info
        pool = self._cupy.get_default_memory_pool()
        return int(free + pool.free_bytes() + self._torch_reserved())

    def scratch_bytes(self) -> int:
        return self._free_memory.bytes() // SHARE_OF_FREE

    def resident_warps(self) -> int:
        attributes = self._device.attributes
        return int(attributes["MultiProcessorCount"] * attributes["MaxThreadsPerMultiProcessor"] // 32)

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        outer = self._streams.current
        if outer is None:
            self._share_torch_pool()  # by which torch begins to use the GPU, and to have a stream
            self._free_memory.forget()
        torch, address = sys.modules.get("torch"), None
        if torch is not None and torch.cuda.is_initialized():
            address = torch_stream(torch, self._device.id)
        if outer is not None and outer.ptr == address:  # the other one has made it, and the GPU, CuPy's current ones
            yield
            return
        with self._device:
            if address is None:
                with self._streams.session(self._cupy.cuda.get_current_stream()):
                    yield
                return
            stream = cupy_stream(self._cupy, address)
            with stream, self._streams.session(stream):
                yield

    def use(self, array: DeviceArray) -> DeviceArray:
        memory = array.data.mem
        if hasattr(memory, "made_on"):
            self._streams.use(memory)
        return array

    def settle(self) -> None:
        self._cupy.cuda.get_current_stream().synchronize()

    def ready(self) -> Any:
        return self._streams.ready()

    def wait_for(self, ready: Any) -> None:
        self._streams.wait_for(ready)

    def finish(self, ready: Any) -> None:
        if ready is not None:
            ready[1].synchronize()

    def prepare(self, kernels: Sequence[Kernel], variant: Variant) -> None:
        missing = [kernel for kernel in kernels if (kernel.source, kernel.name, variant) not in self._functions]
        if not missing:
            return
        compiled = cubins((kernel.source for kernel in missing), variant, self.arch)
        for kernel in missing:
            module = self._cupy.RawModule(path=str(compiled[kernel.source]))
            self._functions[kernel.source, kernel.name, variant] = module.get_function(kernel.name)

    def launch(self, kernel: Kernel, variant: Variant, work: int, arguments: Sequence[Any]) -> None:
        if work <= 0:
            return
        values = [self._argument(argument) for argument in arguments]
        self._function(kernel, variant)((kernel.blocks(work),), (kernel.block,), values)

    def _taken(self, array: DeviceArray) -> DeviceArray:
        self._free_memory.took(array.nbytes)
        return array

    def _argument(self, argument: Any) -> Any:
        if argument is None:
            return np.uint64(0)
        return self.use(argument) if self.owns(argument) else integer(argument)

    def _function(self, kernel: Kernel, variant: Variant) -> Any:
        self.prepare([kernel], variant)
        return self._functions[kernel.source, kernel.name, variant]

    def _share_torch_pool(self) -> None:
        """Let CuPy take memory from torch's pool: two pools would each keep what the other lacks."""
        torch = sys.modules.get("torch")
        if self._allocator is not None or torch is None or not torch.cuda.is_available():
            return
        self._allocator = partial(_allocate, torch, torch_memory(self._cupy))
        self._cupy.cuda.set_allocator(self._allocator)
        torch.cuda.set_device(self._device.id)  # where torch has not chosen yet; else it is this one already

    def _torch_reserved(self) -> int:
        """Bytes that torch's pool keeps without a use."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return 0
        counted = torch.cuda.memory_stats_as_nested_dict(self._device.id)  # memory_reserved() takes some 0.2 ms
        reserved, allocated = (counted[name]["all"]["current"] for name in ("reserved_bytes", "allocated_bytes"))
        return int(reserved - allocated)


class StreamAddress(NamedTuple):
    """A stream by the CUDA stream protocol, which streams of older releases of torch do not speak."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version of the protocol, and the stream."""
        return 0, self.address


def cupy_stream(cupy: Any, address: int) -> Any:
    """Another library's stream as CuPy's."""
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(StreamAddress(address))
    return cupy.cuda.ExternalStream(address)  # before CuPy 14


def torch_stream(torch: Any, device: int) -> int:
    """The address of the stream that torch is on; without an object of torch's for it, where torch can tell it so."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    address: int = torch.cuda.current_stream(device).cuda_stream if raw is None else raw(device)
    return address


def gpu_number(count: int) -> int:
    """The number of this process's GPU, out of `count`."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    told = (os.environ[name] for name in LOCAL_RANKS if os.environ.get(name, "").isdigit())
    return int(next(told, "0")) % count


@cache
def torch_memory(cupy: Any) -> Any:
    """The class of memory of torch's pool in CuPy's arrays: one that knows its stream, as `streams.Memory`."""

    class TorchMemory(cupy.cuda.UnownedMemory):  # type: ignore[misc]
        def __init__(self, tensor: Any, made_on: int) -> None:
            super().__init__(tensor.data_ptr(), tensor.numel(), tensor, tensor.device.index)
            self.made_on = made_on
            self._tensor = tensor

        def keep_for(self, stream: Any) -> None:
            torch = sys.modules["torch"]
            self._tensor.record_stream(torch.cuda.ExternalStream(stream.ptr, self._tensor.device))

    return TorchMemory


def _allocate(torch: Any, memory: Any, size: int) -> Any:
    """Memory of torch's pool as CuPy's pointer; where there is none, Python's own error, as CuPy's pool raises it."""
    try:
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        raise MemoryError(str(error)) from error
    made_on = torch_stream(torch, tensor.device.index)
    return sys.modules["cupy"].cuda.MemoryPointer(memory(tensor, made_on), 0)
