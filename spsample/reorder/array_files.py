"""`RowFile`: the file of an array, written in the background, from the beginning to the end.

What is put together in memory is written and hashed by threads of their own, while the next piece is put together. The
pieces go to the disk past the system's cache of pages (``O_DIRECT``) where the file system can: no processor copies
them, the disk begins at once, and little is left to flush at the end.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.store.layout import CHUNK_BYTES

_PIECES = 4
"""In memory at a time: one is put together while others are hashed and written."""
_MAX_PIECE = 32 * 2**20
_WRITING = 2
"""Threads that write: the next piece waits at the disk when one is done."""
_BLOCK = 4096
"""Bytes by which memory and place in the file must be aligned for a disk to take them past the system's cache."""
_MIN_DIRECT = 2**20
"""Bytes from which that pays."""


class Workers:
    """Threads and memory that several files share; a context manager.

    Parameters
    ----------
    threads : int
        That hash. Two more write.
    memory : int, optional
        Bytes of all pieces that are in memory at a time, at most 128 MiB.

    Attributes
    ----------
    piece_bytes : int
        Of a piece; at least 1.
    """

    def __init__(self, threads: int, memory: int = _PIECES * _MAX_PIECE) -> None:
        self.writing = ThreadPoolExecutor(_WRITING, thread_name_prefix="write")
        self.hashing = ThreadPoolExecutor(threads, thread_name_prefix="sha256")
        self.piece_bytes = max(1, min(memory // _PIECES, _MAX_PIECE))
        self.free: SimpleQueue[_AlignedMemory] = SimpleQueue()
        for _ in range(_PIECES):
            self.free.put(_AlignedMemory())

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        for pool in (self.writing, self.hashing):
            pool.shutdown(cancel_futures=True)


class _AlignedMemory:
    """Memory of a piece, used again and again."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def at(self, offset: int, count: int) -> NDArray[np.uint8]:
        """As many bytes, which lie in their block of memory as those from `offset` on do in a file's."""
        if len(self._bytes) < count + 2 * _BLOCK:
            self._bytes = np.empty(count + 2 * _BLOCK, np.uint8)
        first = (offset - self._bytes.ctypes.data) % _BLOCK
        return self._bytes[first : first + count]


class _UnderWay(NamedTuple):
    """A piece that is hashed and written."""

    bytes: int
    hashed: list[Future[None]]
    written: Future[None]


class RowFile:
    r"""The file of an array that a writer has made.

    Parameters
    ----------
    path : Path
    array : memory map
        As `spsample.store.StoreWriter.create` returns it.
    workers : Workers
    wrote : callable
        Called with the bytes of each piece that is done.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> path.touch()
    >>> with Workers(1) as workers, RowFile(path, None, workers, print) as file:
    ...     file.write(np.arange(3, dtype=np.int8))
    ...     with file.room(1) as memory:
    ...         memory[:] = 1
    ...     sums = file.checksums()
    3
    1
    >>> path.read_bytes(), sums == [hashlib.sha256(bytes([0, 1, 2, 1])).hexdigest()]
    (b'\x00\x01\x02\x01', True)
    """

    def __init__(self, path: Path, array: Any, workers: Workers, wrote: Callable[[int], None]) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._direct: int | None = None
        with suppress(OSError, AttributeError):  # not all systems can write past their cache
            self._direct = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
        self._begin = int(getattr(array, "offset", 0))
        self._workers = workers
        self.piece_bytes = workers.piece_bytes
        """Number of bytes to put together at a time."""
        self._wrote = wrote
        self._handed_in = 0
        self._sums: list[Any] = []
        self._last_hash: Future[None] | None = None
        self._under_way: deque[_UnderWay] = deque()

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if exception[0] is None:
                self._collect()
        finally:
            wait([piece.written for piece in self._under_way])  # else they go on in another file of that descriptor
            os.close(self._descriptor)
            if self._direct is not None:
                os.close(self._direct)

    def write(self, values: NDArray[Any]) -> None:
        """Copy what comes next, in C order; it may be changed when the call has returned.

        Raises
        ------
        OSError
            If the disk was full, or failed, for a piece before.
        """
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        for first in range(0, len(content), self.piece_bytes):
            part = content[first : first + self.piece_bytes]
            with self.room(len(part)) as memory:
                memory[:] = part

    @contextmanager
    def room(self, count: int) -> Iterator[NDArray[np.uint8]]:
        """Give memory for the next `count` bytes, which are handed in when the block ends: nothing is copied then.

        Raises
        ------
        OSError
            As `write`.
        """
        memory = self._workers.free.get()
        try:
            self._collect(to_the_end=False)
            piece = memory.at(self._begin + self._handed_in, count)
            yield piece
        except BaseException:
            self._workers.free.put(memory)
            raise
        hashed = self._hash(piece)
        offset = self._begin + self._handed_in
        written = self._workers.writing.submit(self._write, piece, offset, hashed, memory)
        self._under_way.append(_UnderWay(len(piece), hashed, written))
        self._handed_in += len(piece)

    def checksums(self) -> list[str]:
        """Wait for all pieces, and return the SHA-256 of each 64 MiB.

        Raises
        ------
        OSError
            As `write`.
        """
        self._collect()
        return [chunk.hexdigest() for chunk in self._sums]

    def _collect(self, *, to_the_end: bool = True) -> None:
        """Report the pieces, one after the other: all, or the first ones that are done."""
        while self._under_way and (to_the_end or self._under_way[0].written.done()):
            piece = self._under_way[0]
            for future in (*piece.hashed, piece.written):
                future.result()
            self._under_way.popleft()
            self._wrote(piece.bytes)

    def _hash(self, piece: NDArray[np.uint8]) -> list[Future[None]]:
        """Hash the part of each chunk of 64 MiB that is in a piece."""
        futures, at = [], 0
        while at < len(piece):
            chunk, before = divmod(self._handed_in + at, CHUNK_BYTES)
            part = piece[at : at + CHUNK_BYTES - before]
            if chunk == len(self._sums):
                self._sums.append(hashlib.sha256())
            after = self._last_hash if before else None
            self._last_hash = self._workers.hashing.submit(_update, self._sums[chunk], part, after)
            futures.append(self._last_hash)
            at += len(part)
        return futures

    def _write(self, piece: NDArray[np.uint8], offset: int, hashed: list[Future[None]], memory: _AlignedMemory) -> None:
        """Write a piece while others hash it, past the system's cache what fills whole blocks."""
        try:
            begin = min(-offset % _BLOCK, len(piece))
            end = max(begin, len(piece) - (offset + len(piece)) % _BLOCK)
            if self._direct is None or end - begin < _MIN_DIRECT:
                begin = end = 0
            else:
                end = begin + _write_bytes(self._direct, piece[begin:end], offset + begin, may_refuse=True)
            _write_bytes(self._descriptor, piece[:begin], offset)
            _write_bytes(self._descriptor, piece[end:], offset + end)
        finally:
            wait(hashed)
            self._workers.free.put(memory)


def _update(sha256: Any, part: NDArray[np.uint8], after: Future[None] | None) -> None:
    """Hash a part, after the one before it in the same chunk."""
    if after is not None:
        after.result()
    sha256.update(part.data)


def _write_bytes(descriptor: int, piece: NDArray[np.uint8], offset: int, *, may_refuse: bool = False) -> int:
    """Write a piece; return how many bytes the file system took, which may refuse those past its cache."""
    done = 0
    try:
        while done < len(piece):
            done += os.pwrite(descriptor, piece.data[done:], offset + done)
    except OSError as error:
        if not may_refuse or error.errno != errno.EINVAL:
            raise
    return done
