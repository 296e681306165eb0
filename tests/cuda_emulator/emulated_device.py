"""A device without a GPU: the CUDA sources compiled for the host, their threads run one by one (emulator.h)."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import races
from emulated_streams import Memory, Pinned, Timeline
from numpy.lib.mixins import NDArrayOperatorsMixin
from parameters import only_read

from spsample.backends.cuda.device import SHARE_OF_FREE, integer
from spsample.backends.cuda.sources import include_options, kernel_folder, source_path
from spsample.backends.cuda.streams import Streams

HERE = Path(__file__).resolve().parent
OPTIONS = ["-std=c++17", "-O1", "-g1", "-fPIC", "-shared", "-w", f"-I{HERE}"]
KERNEL_OPTIONS = ["-ffp-contract=off", "-fvisibility=hidden", "-DSPSAMPLE_EMULATED"]


def checks() -> list[str]:
    """Under a sanitizer the kernels' accesses to arrays are checked, too; not those to the stacks of fibers."""
    if races.watched():
        return races.OPTIONS
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        return ["-fsanitize=address", "--param", "asan-stack=0"]
    return []


class EmulatedArray(NDArrayOperatorsMixin):
    """An array in memory of the emulated device. As with CuPy's, NumPy cannot read it without being told to copy it.

    What Python's operators do to it is work on the session's stream, as launches are.
    """

    __array_priority__ = 100

    def __init__(self, host, device, memory=None):
        self.host = host
        self.device = device
        self.memory = device.new_memory(host) if memory is None else memory

    dtype = property(lambda self: self.host.dtype)
    shape = property(lambda self: self.host.shape)
    size = property(lambda self: self.host.size)
    ndim = property(lambda self: self.host.ndim)
    nbytes = property(lambda self: self.host.nbytes)
    itemsize = property(lambda self: self.host.itemsize)

    def __len__(self):
        return len(self.host)

    def __getitem__(self, key):
        if isinstance(key, (slice, tuple)) or key is None:
            return self._view(self.host[key])
        if isinstance(key, EmulatedArray):
            return self._made("a[b]", self.host[key.host], key)
        raise TypeError(f"an index of type {type(key).__name__} is not on the device")

    def __setitem__(self, key, value):
        if not isinstance(key, slice):
            raise TypeError("only slices are assigned to")
        self.device.touch("a[...] = b", [value] if isinstance(value, EmulatedArray) else [], [self])
        self.host[key] = value.host if isinstance(value, EmulatedArray) else np.asarray(value).item()

    def __iter__(self):
        raise TypeError("elements are on the device")

    def __bool__(self):
        raise TypeError("the value is on the device")

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion of a device array to NumPy is not allowed")

    def __dlpack__(self, **kwargs):
        return self.host.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.host.__dlpack_device__()

    def __reduce__(self):
        return _restored, (id(self.device), self.host)

    def astype(self, dtype, copy=True):
        return self._made("astype", self.host.astype(dtype, copy=copy))

    def copy(self):
        return self._made("copy", self.host.copy())

    def view(self, dtype):
        return self._view(self.host.view(dtype))

    def reshape(self, *shape):
        return self._view(self.host.reshape(*shape))

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if method != "__call__" or kwargs.get("out"):
            raise TypeError(f"{ufunc.__name__}.{method} is not among what the backend may use")
        others = [one for one in inputs if isinstance(one, EmulatedArray)]
        return self._made(ufunc.__name__, ufunc(*map(_operand, inputs), **kwargs), *others)

    def _view(self, host):
        return EmulatedArray(host, self.device, self.memory)

    def _made(self, what, host, *others):
        self.device.touch(what, [self, *others])
        return EmulatedArray(host, self.device)


_DEVICES = WeakValueDictionary()
"""By id: an array that is read back, or copied deeply, is on the same device."""


def _restored(device, host):
    return EmulatedArray(host.copy(), _DEVICES[device])


def _operand(value):
    if isinstance(value, EmulatedArray):
        return value.host
    if isinstance(value, np.ndarray) and value.ndim > 0:
        raise TypeError("an array on the host beside one on the device")
    return value


class EmulatedDevice:
    """Counts launches and waits: `launches`, `waits`.

    Callers are on stream 1, or the one of `with device.callers_on(number)`. Work that reads what it did not wait for is
    an error, and so is work on memory that is not kept for its stream.
    """

    arch = "emulated"

    def __init__(self, free_bytes=1 << 30):
        self.launches = 0
        self.waits = 0
        self.kernels = set()
        self.prepared = set()
        self.timeline = Timeline()
        self._streams = Streams()
        self._pinned = []
        self._free_bytes = free_bytes
        self._order = 0
        _DEVICES[id(self)] = self

    def check(self):
        """Raises what was found of streams."""
        self.timeline.check()

    @contextmanager
    def callers_on(self, number):
        """The caller of this thread is on another stream."""
        before, self.timeline.callers = self.timeline.callers, number
        yield
        self.timeline.callers = before

    def new_memory(self, host):
        """That of an array that the session's work makes."""
        with self.timeline.lock:
            stream = self._stream()
            memory = Memory(self.timeline, stream, f"{host.dtype}{list(host.shape)}")
            memory.touch(stream, stream.work(), True, "an allocation")
            return memory

    def touch(self, what, reads, writes=()):
        """Some work of the session reads and writes arrays."""
        with self.timeline.lock:
            stream = self._stream()
            place = stream.work()
            for arrays, is_written in ((reads, False), (writes, True)):
                for array in arrays:
                    array.memory.touch(stream, place, is_written, what)
            self.check()

    def _stream(self):
        return self._streams.current or self.timeline.stream(self.timeline.callers)

    def empty(self, shape, dtype):
        out = np.empty(shape, dtype)
        out.view(np.uint8)[...] = 0xA5 if out.size else 0  # what memory holds before it is written
        return EmulatedArray(out, self)

    def zeros(self, shape, dtype):
        return EmulatedArray(np.zeros(shape, dtype), self)

    def full(self, shape, value, dtype):
        return EmulatedArray(np.full(shape, value, dtype), self)

    def concatenate(self, parts):
        self.touch("concatenate", [self.use(part) for part in parts])
        return EmulatedArray(np.concatenate([part.host for part in parts]), self)

    def cumsum(self, values, out):
        self.touch("cumsum", [self.use(values)], [self.use(out)])
        np.cumsum(values.host, dtype=out.dtype, out=out.host)

    def sort(self, values):
        self.touch("sort", [self.use(values)])
        return EmulatedArray(np.sort(values.host), self)

    def argsort(self, values):
        self.touch("argsort", [self.use(values)])
        return EmulatedArray(np.argsort(values.host, kind="stable"), self)

    def to_device(self, array):
        assert isinstance(array, np.ndarray), type(array)
        return EmulatedArray(np.array(array, order="C"), self)

    def to_host(self, array):
        self.waits += 1
        self.touch("to_host", [self.use(array)])
        self.settle()
        return array.host.copy()

    def pinned(self, array):
        copied = self.to_device(array)
        self.settle()  # the host writes it itself
        copied.memory.is_on_host = True
        return copied

    def pinned_empty(self, shape, dtype):
        there = self.empty(shape, dtype)
        self.settle()
        self._pinned.append(Pinned(self.timeline, there.host))
        there.memory.is_on_host = True
        return there.host, there

    def finish(self, ready):
        self.timeline.finish(ready[1])

    def is_on_host(self, array):
        return array.memory.is_on_host

    def address(self, array):
        return array.host.ctypes.data

    def owns(self, array):
        return isinstance(array, EmulatedArray)

    def free_bytes(self):
        return self._free_bytes

    def scratch_bytes(self):
        return self.free_bytes() // SHARE_OF_FREE

    def resident_warps(self):
        return 16

    def on_stream(self):
        return self._streams.session(self.timeline.stream(self.timeline.callers))

    def use(self, array):
        self._streams.use(array.memory)
        return array

    def settle(self):
        self._stream().synchronize()

    def ready(self):
        return self._streams.ready()

    def wait_for(self, ready):
        self._streams.wait_for(ready)

    def prepare(self, kernels, variant):
        self.prepared.update(kernel.name for kernel in kernels)

    def launch(self, kernel, variant, work, arguments):
        if work <= 0:
            return
        libraries = load(kernel.source, variant)
        self._touched(kernel, arguments)
        values = (ctypes.c_uint64 * len(arguments))(*map(self._argument, arguments))
        functions = [ctypes.cast(getattr(library, kernel.name), ctypes.c_void_p) for library in libraries]
        blocks = min(kernel.blocks(work), races.BLOCKS if races.watched() else 64)  # kernels walk with a grid stride
        self.launches += 1
        self.kernels.add(kernel.name)
        self._order += 1
        error = emulator().emulator_launch(
            (ctypes.c_void_p * len(functions))(*functions),
            len(functions),
            blocks,
            kernel.block,
            values,
            len(values),
            self._order,
        )
        name = f"{kernel.source}.{kernel.name}"
        if races.watched():  # first: threads that wait for ever may do so because of a race
            races.watch().launched(name, kernel.blocks(work))
        if error:
            raise AssertionError(f"{name}: {error.decode()}")

    def _touched(self, kernel, arguments):
        pairs = list(zip(arguments, only_read(source_path(kernel.source), kernel.name), strict=True))
        arrays = [(self.use(one), is_read) for one, is_read in pairs if isinstance(one, EmulatedArray)]
        reads, writes = ([one for one, is_read in arrays if is_read == kind] for kind in (True, False))
        name = f"{kernel.source}.{kernel.name}"
        self.touch(name, reads, writes)
        if name.startswith("features.gather"):
            with self.timeline.lock:
                stream = self._stream()
                for pinned in self._pinned:
                    pinned.read(arguments[0].host, stream, stream.clock[stream.ptr], name)
                self.check()

    def _argument(self, argument: Any) -> int:
        if argument is None:
            return 0
        if isinstance(argument, EmulatedArray):
            assert argument.host.flags.c_contiguous
            return argument.host.ctypes.data if argument.size else 0
        assert not isinstance(argument, np.ndarray), "an array on the host given to a kernel"
        return int(integer(argument))


@cache
def load(source, variant):
    """The library of a source, compiled once for its content: a copy for each block that runs beside others.

    Shared memory is static, so that blocks of one library have the same.
    """
    options = [*OPTIONS, *KERNEL_OPTIONS, *checks(), *variant.macros, *include_options()]
    path = _compiled(source_path(source), [*options, "-x", "c++"], ["-x", "none", str(_emulator())])
    copies = [path, *(_copy(path, number) for number in range(1, races.BLOCKS if races.watched() else 1))]
    return [ctypes.PyDLL(str(copy)) for copy in copies]


@cache
def emulator():
    """The library that runs kernels. It keeps the GIL: one kernel runs at a time."""
    if races.watched():
        races.watch()  # from here on
    library = ctypes.PyDLL(str(_emulator()))
    library.emulator_launch.restype = ctypes.c_char_p
    integer64, pointer = ctypes.c_uint64, ctypes.c_void_p
    library.emulator_launch.argtypes = [pointer, integer64, integer64, integer64, pointer, integer64, integer64]
    return library


def _emulator():
    macros = ["-DEMULATOR_RACES"] if races.watched() else []
    return _compiled(HERE / "emulator.cpp", [*OPTIONS, "-O2", *macros])


def _compiled(source, options, linked=()):
    """The library of a file, kept under a name that is a hash of all that is compiled."""
    command = [os.environ.get("CXX", "g++"), *options, str(source), *linked]
    digest = hashlib.sha256(repr((command, source.read_bytes(), _digest())).encode()).hexdigest()[:24]
    path = _folder() / f"{source.stem}-{digest}.so"

    def compile_to(partial):
        clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        subprocess.run([*command, "-o", str(partial)], check=True, env=clean)

    return _made(path, compile_to)


def _copy(path, number):
    return _made(path.with_suffix(f".{number}.so"), lambda partial: shutil.copyfile(path, partial))


def _made(path, make):
    """The file, made where it is missing: tests run in several processes."""
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            partial = path.with_suffix(f".{os.getpid()}")
            make(partial)
            partial.rename(path)
    return path


def _folder():
    folder = Path(tempfile.gettempdir()) / f"spsample-emulated-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


@cache
def _digest():
    kernels = kernel_folder()
    files = [*(kernels / "cuda").iterdir(), *(kernels / "include").rglob("*.h"), *HERE.glob("emulator.*")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(files))).hexdigest()
