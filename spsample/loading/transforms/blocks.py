"""Blocks of shared memory: made, enlarged and removed by one process, written and read by another one too."""

from __future__ import annotations

import os
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory
from uuid import uuid4

from spsample.common.units import format_bytes
from spsample.errors import BackendError

__all__ = ["Block", "OthersBlock"]

_FOLDER = "/dev/shm"
_SMALLEST = 1 << 16


class Block:
    """Shared memory that grows. Whoever made it removes it, by `close`.

    Examples
    --------
    >>> block = Block()
    >>> block.view(10)[:2] = b"ab"
    >>> other = OthersBlock()
    >>> bytes(other.view(block.name)[:2])
    b'ab'
    >>> other.close(); block.close()
    """

    def __init__(self) -> None:
        self._memory: SharedMemory | None = None

    @property
    def name(self) -> str:
        """By which another process finds it; "" while there is none."""
        return "" if self._memory is None else self._memory.name

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return 0 if self._memory is None else self._memory.size

    def view(self, nbytes: int) -> memoryview:
        """At least that many bytes; what was in it is lost where it had to grow.

        Raises
        ------
        BackendError
            If there is not that much shared memory.
        """
        if self._memory is None or self._memory.size < nbytes:
            self.close()
            self._memory = _made(max(2 * nbytes, _SMALLEST))
        return _bytes_of(self._memory)

    def close(self) -> None:
        """Remove it."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()
            with suppress(FileNotFoundError):
                memory.unlink()


class OthersBlock:
    """A block that another process made."""

    def __init__(self) -> None:
        self._memory: SharedMemory | None = None

    def view(self, name: str) -> memoryview:
        """The bytes of the block with that name."""
        if self._memory is None or self._memory.name != name:
            self.close()
            self._memory = SharedMemory(name)
        return _bytes_of(self._memory)

    def close(self) -> None:
        """Let it go."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()


def _bytes_of(memory: SharedMemory) -> memoryview:
    view = memory.buf
    if view is None:  # only after it was closed
        raise BackendError("the shared memory of a transform was closed while it was in use")
    return view


def _made(nbytes: int) -> SharedMemory:
    """Shared memory whose pages are there: a write to one that is not would end the process."""
    try:
        memory = SharedMemory(f"spsample-{os.getpid()}-{uuid4().hex[:12]}", create=True, size=nbytes)
    except OSError as error:
        raise _none_left(nbytes) from error
    path = f"{_FOLDER}/{memory.name.lstrip('/')}"
    if hasattr(os, "posix_fallocate") and os.path.exists(path):
        file = os.open(path, os.O_RDWR)
        try:
            os.posix_fallocate(file, 0, nbytes)
        except OSError as error:
            memory.close()
            memory.unlink()
            raise _none_left(nbytes) from error
        finally:
            os.close(file)
    return memory


def _none_left(nbytes: int) -> BackendError:
    return BackendError(
        f"no {format_bytes(nbytes)} of shared memory for the processes of a transform: give the machine or its "
        f"container more of it ({_FOLDER}), or use transform_workers=0"
    )
