"""ThreadSanitizer over the emulated device, in a process begun by `python races.py ARGUMENTS OF PYTHON`."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

BLOCKS = 3
"""So many of a launch run beside each other."""

OPTIONS = ["-fsanitize=thread", "--param=tsan-distinguish-volatile=1"]
"""Of the compiler; the second tells volatile accesses, which are relaxed atomic ones to a GPU, from others."""

SETTINGS = 'atexit_sleep_ms=0 history_size=4 suppress_equal_addresses=0 stack_trace_format="    #%n %f %S (%m+%o)"'
"""Of ThreadSanitizer: a race is told though one was told of the same address, where another array is by now; `%m` is
the whole path of a library."""

NO_RANDOM_ADDRESSES = 0x0040000
"""Of the system call `personality`: ThreadSanitizer wants memory at fixed addresses."""


def watched() -> bool:
    """Whether ThreadSanitizer watches this process."""
    return "libtsan" in os.environ.get("LD_PRELOAD", "")


class Watch:
    """What ThreadSanitizer reports of this process, and `widest`: the most blocks' work that each kernel was given."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="spsample-races-")
        set_path = getattr(ctypes.CDLL(None), "__sanitizer_set_report_path")
        set_path(os.path.join(self._folder.name, "report").encode())
        self._path = Path(self._folder.name) / f"report.{os.getpid()}"
        self._read = 0
        self.widest: dict[str, int] = {}

    def launched(self, name: str, blocks: int) -> None:
        """A kernel has run on work for so many blocks. Raises what was reported of it."""
        self.widest[name] = max(blocks, self.widest.get(name, 0))
        if report := self._new():
            raise AssertionError(f"{name}: threads race\n{readable(report)}")

    def _new(self) -> str:
        """Reports since the last call."""
        if not self._path.exists():
            return ""
        text = self._path.read_text(errors="replace")[self._read :]
        self._read += len(text)
        return text


@cache
def watch() -> Watch:
    """That of this process."""
    return Watch()


def readable(report: str) -> str:
    """Without where fibers were made, and with the lines of libraries that were loaded after the first report."""
    report = re.sub(r"(  Thread T\d+ '.*?').*\n(    #.*\n)+\n?", r"\1\n", report)
    return re.sub(r"<null> <null> \((/\S+)\+(0x\w+)\)", lambda place: _line(*place.groups()), report)


def _line(library: str, address: str) -> str:
    command = ["addr2line", "-pfCi", "-e", library, address]
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, env=clean).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return f"{library}+{address}"


# --- the process ------------------------------------------------------------------------------------------------------


def library() -> str | None:
    """The compiler's libtsan, which a process is started with; None where there is none."""
    try:
        command = [os.environ.get("CXX", "g++"), "-print-file-name=libtsan.so"]
        path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return path if os.path.isabs(path) and os.path.exists(path) else None


def main() -> None:
    """Become the Python of `sys.argv[1:]`, watched."""
    preloaded = library()
    if preloaded is None:
        sys.exit("races: the C++ compiler has no libtsan.so (GCC on Linux with its sanitizer libraries is needed)")
    settings = {"LD_PRELOAD": preloaded, "TSAN_OPTIONS": SETTINGS, "OMP_NUM_THREADS": "1"}
    ctypes.CDLL(None).personality(NO_RANDOM_ADDRESSES)
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {**os.environ, **settings})


if __name__ == "__main__":
    main()
