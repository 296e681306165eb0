"""ThreadSanitizer over the emulated device, in a process begun by `python races.py ARGUMENTS OF PYTHON`."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

BLOCKS = 3
"""So many of a launch run beside each other."""

OPTIONS = ["-fsanitize=thread", "--param=tsan-distinguish-volatile=1"]
"""Of the compiler; the second one tells volatile reads, which are relaxed atomic ones to a GPU, from others."""

NO_RANDOM_ADDRESSES = 0x0040000


def watched() -> bool:
    """Whether ThreadSanitizer watches this process."""
    return "libtsan" in os.environ.get("LD_PRELOAD", "")


def new_reports() -> str:
    """What ThreadSanitizer has reported since the last call."""
    path = _reports()
    if not path.exists():
        return ""
    text = path.read_text(errors="replace")
    path.write_text("")
    return text


@cache
def _reports() -> Path:
    """The file that reports go to, of this process."""
    folder = Path(tempfile.mkdtemp(prefix="spsample-races-"))
    ctypes.CDLL(None).__sanitizer_set_report_path(bytes(folder / "report"))
    return folder / f"report.{os.getpid()}"


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
        sys.exit("races: the C++ compiler has no libtsan (GCC 11 or later on Linux is needed, with its sanitizer libraries)")
    options = "atexit_sleep_ms=0 history_size=4"
    changed = {"LD_PRELOAD": preloaded, "TSAN_OPTIONS": options, "OMP_NUM_THREADS": "1", "PYTHONMALLOC": "malloc"}
    ctypes.CDLL(None).personality(NO_RANDOM_ADDRESSES)  # ThreadSanitizer wants memory at fixed addresses
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {**os.environ, **changed})


if __name__ == "__main__":
    main()
