"""The machine itself: as many random cache lines, or rows, as a task has to read. Needs a C++ compiler with OpenMP."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from ..case import Peer, Side, Work
from ..inputs import Inputs

SOURCE = Path(__file__).parents[1] / "native" / "random_lines.cpp"
LINE, BUFFER = 64, 1 << 30
"""Bytes of a cache line, and of the buffer: beyond every cache."""


def random_lines(inputs: Inputs) -> Work:
    """As many random lines as the cell's ``lines``, with as many loads in flight as the processor holds."""
    memory, lines = _Memory(inputs), ctypes.c_uint64(int(inputs["lines"]))

    def work() -> dict[str, float]:
        memory.library.random_lines(memory.pointer, ctypes.c_uint64(BUFFER // LINE), lines, memory.threads)
        return {"batches": inputs["batches"], "lines": lines.value}

    return work


def random_rows(inputs: Inputs) -> Work:
    """As many random rows of features as the cell's ``rows``, read whole."""
    memory, words = _Memory(inputs), inputs["dim"] * 4 // 8
    rows, known = ctypes.c_uint64(int(inputs["rows"])), ctypes.c_uint64(BUFFER // (8 * words))

    def work() -> dict[str, float]:
        memory.library.random_rows(memory.pointer, known, ctypes.c_uint64(words), rows, memory.threads)
        return {"batches": inputs["batches"], "rows": rows.value}

    return work


class _Memory:
    """A buffer on huge pages where the system has them, read by the threads of the cell."""

    def __init__(self, inputs: Inputs) -> None:
        with tempfile.TemporaryDirectory(prefix="spsample-bench-") as folder:
            self.library = ctypes.CDLL(str(_compile(Path(folder))))  # stays mapped when the file is gone
        self.library.prepare.restype = None
        self.library.random_lines.restype = self.library.random_rows.restype = ctypes.c_uint64
        self._buffer = np.empty(BUFFER // 8, np.uint64)
        self.pointer = ctypes.c_void_p(self._buffer.ctypes.data)
        self.threads = ctypes.c_int(int(inputs.get("threads", 1)))
        self.library.prepare(self.pointer, ctypes.c_uint64(BUFFER), self.threads)


def _compile(folder: Path) -> Path:
    """The shared library, by the compiler of CXX or the system's."""
    compiler = next(filter(shutil.which, filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))), None)
    if compiler is None:
        raise RuntimeError("no C++ compiler: set CXX, or install one")
    library = folder / "random_lines.so"
    command = [compiler, "-O3", "-fopenmp", "-shared", "-fPIC", str(SOURCE), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:-1])} failed: {done.stderr.strip()[-500:]}")
    return library


PEER = Peer(
    "memory",
    ("numpy",),
    {
        "blocks": (Side("limit: lines read at random", random_lines),),
        "loader-blocks": (Side("limit: rows read at random", random_rows),),
        "gather": (Side("limit: rows read at random", random_rows),),
    },
    is_limit=True,
)
