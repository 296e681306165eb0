"""A memory cgroup (version 1 or 2) around this process: what the system may keep for it, its page cache included."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ROOTS = (
    (Path("/sys/fs/cgroup/memory"), "memory.usage_in_bytes", "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.current", "memory.max"),
)

_NAME = "spsample-bench-"


class NoGroupError(RuntimeError):
    """No cgroup can be made here."""


class MemoryGroup:
    """A group of its own for this process."""

    def __init__(self, folder: Path, usage: str, limit: str) -> None:
        self._folder, self._usage, self._limit = folder, usage, limit

    def usage(self) -> int:
        """Bytes that count for the group now."""
        return int((self._folder / self._usage).read_text())

    def limit(self, size: int) -> None:
        """From now on at most so many."""
        (self._folder / self._limit).write_text(str(size))


@contextmanager
def memory_group() -> Iterator[MemoryGroup]:
    """This process in a new group, which is removed at the end; what it took before counts elsewhere.

    Raises
    ------
    NoGroupError
        If there is no memory controller, or no right to make a group (root, or a delegated folder).
    """
    root, usage, limit = _usable_root()
    _remove_left(root)
    folder = root / f"{_NAME}{os.getpid()}"
    folder.mkdir()
    before = _own_group(root)
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield MemoryGroup(folder, usage, limit)
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()


def _usable_root() -> tuple[Path, str, str]:
    """Where a group can be made, and its files of what is used and of the limit."""
    for root, usage, limit in _ROOTS:
        folder = root / f"{_NAME}probe-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        has_memory = (folder / usage).is_file()
        folder.rmdir()
        if has_memory:
            return root, usage, limit
    raise NoGroupError("no memory cgroup can be made: it takes root, and a memory controller")


def _remove_left(root: Path) -> None:
    """Remove groups of processes that were killed, by this limit say."""
    for folder in root.glob(f"{_NAME}[0-9]*"):
        if not Path(f"/proc/{folder.name.removeprefix(_NAME)}").exists():
            with suppress(OSError):
                folder.rmdir()


def _own_group(root: Path) -> Path:
    """The group of this process below that root."""
    controller = "memory" if root.name == "memory" else ""
    for line in Path("/proc/self/cgroup").read_text("ascii").splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return root / path.lstrip("/")
    return root
