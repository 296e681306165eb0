"""The memory's limits, measured: random cache lines, and copying. Needs a C++ compiler with OpenMP."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from lines import LINE_BYTES

SOURCE = Path(__file__).with_name("native") / "random_lines.cpp"
COMPILERS = ("c++", "g++", "clang++")


class NoCompilerError(RuntimeError):
    """The limits cannot be measured on this machine."""


class Memory:
    """A buffer far larger than the last-level cache, on huge pages where the system has them, read by `threads`."""

    def __init__(self, num_bytes: int, threads: int) -> None:
        self._library = _library()
        self._buffer = np.empty(num_bytes // LINE_BYTES * LINE_BYTES // 8, np.uint64)
        self._threads = ctypes.c_int(threads)
        self._library.prepare(self._pointer, self._bytes, self._threads)

    @property
    def _pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._buffer.ctypes.data)

    @property
    def _bytes(self) -> ctypes.c_uint64:
        return ctypes.c_uint64(self._buffer.nbytes)

    def read_random_lines(self, count: int) -> None:
        """Load a word of each of so many random lines, with as many loads in flight as the processor holds."""
        lines = ctypes.c_uint64(self._buffer.nbytes // LINE_BYTES)
        self._library.random_lines(self._pointer, lines, ctypes.c_uint64(count), self._threads)

    def read_random_rows(self, row_bytes: int, count: int) -> None:
        """Load all of so many random rows, a multiple of 8 bytes each, with as many lines in flight."""
        words = row_bytes // 8
        rows = ctypes.c_uint64(self._buffer.nbytes // (8 * words))
        self._library.random_rows(self._pointer, rows, ctypes.c_uint64(words), ctypes.c_uint64(count), self._threads)

    def copy(self, count: int) -> None:
        """Copy so many bytes: twice as many pass the memory, read and written."""
        self._library.copy_bytes(self._pointer, self._bytes, ctypes.c_uint64(count), self._threads)


def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as folder:
        library = ctypes.CDLL(str(_compile(Path(folder))))  # stays mapped when the file is gone
    library.prepare.restype = library.copy_bytes.restype = None
    library.random_lines.restype = library.random_rows.restype = ctypes.c_uint64
    return library


def _compile(folder: Path) -> Path:
    """The shared library, compiled by the compiler of CXX or the system's."""
    compiler = next(filter(shutil.which, filter(None, (os.environ.get("CXX"), *COMPILERS))), None)
    if compiler is None:
        raise NoCompilerError(f"no C++ compiler: set CXX, or install one of {', '.join(COMPILERS)}")
    library = folder / "random_lines.so"
    command = [compiler, "-O3", "-fopenmp", "-shared", "-fPIC", str(SOURCE), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCompilerError(f"{' '.join(command[:-1])} failed: {done.stderr.strip()[-500:]}")
    return library
