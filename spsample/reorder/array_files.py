"""`ArrayFile`: the file of an array, written in the background, from the beginning to the end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.store.layout import CHUNK_BYTES

__all__ = ["ArrayFile", "Workers"]

Wrote = Callable[[int], None]
"""Told how many bytes were written."""


class Workers:
    """Threads that several files share: one writes, the others hash what is written; a context manager.

    Parameters
    ----------
    threads : int
        That hash.
    """

    def __init__(self, threads: int) -> None:
        self.writing = ThreadPoolExecutor(1, thread_name_prefix="write")
        self.hashing = ThreadPoolExecutor(threads, thread_name_prefix="sha256")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        for pool in (self.writing, self.hashing):
            pool.shutdown(cancel_futures=True)


class ArrayFile:
    r"""The file of an array that a writer has made.

    What is handed in is written and hashed by threads of their own. When `write` returns, the piece before the one that
    was handed in is done with: its memory may be used again.

    Parameters
    ----------
    path : Path
    array : memory map
        As `spsample.store.StoreWriter.create` returns it.
    workers : Workers
    wrote : callable
        Told of each piece that is done.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> path.touch()
    >>> with Workers(1) as workers, ArrayFile(path, None, workers, print) as file:
    ...     file.write(np.arange(3, dtype=np.int8))
    ...     file.write(np.ones(1, np.int8))
    ...     sums = file.checksums()
    3
    1
    >>> path.read_bytes(), sums == [hashlib.sha256(bytes([0, 1, 2, 1])).hexdigest()]
    (b'\x00\x01\x02\x01', True)
    """

    def __init__(self, path: Path, array: Any, workers: Workers, wrote: Wrote) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._offset = int(getattr(array, "offset", 0))
        self._workers = workers
        self._wrote = wrote
        self._done = 0
        self._sums: list[Any] = []
        self._under_way: Future[int] | None = None

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._wait()
            elif self._under_way is not None:
                wait([self._under_way])  # it must not go on in another file that is given the descriptor
        finally:
            os.close(self._descriptor)

    def write(self, values: NDArray[Any]) -> None:
        """Hand in what comes next, in C order; it must not be changed before the next call has returned.

        Raises
        ------
        OSError
            If the disk was full, or failed, for the piece before.
        """
        piece = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self._wait()
        self._under_way = self._workers.writing.submit(self._write, piece)

    def checksums(self) -> list[str]:
        """Wait for all pieces, and return the SHA-256 of each 64 MiB.

        Raises
        ------
        OSError
            As `write`.
        """
        self._wait()
        return [one.hexdigest() for one in self._sums]

    def _wait(self) -> None:
        if self._under_way is not None:
            written = self._under_way.result()
            self._under_way = None
            self._wrote(written)

    def _write(self, piece: NDArray[np.uint8]) -> int:
        """Write a piece while others hash it; return its bytes."""
        hashed = self._hash(piece)
        view, done = piece.data, 0
        while done < len(view):
            done += os.pwrite(self._descriptor, view[done:], self._offset + self._done + done)
        for future in hashed:
            future.result()
        self._done += done
        return done

    def _hash(self, piece: NDArray[np.uint8]) -> list[Future[None]]:
        """Hash the part of each chunk of 64 MiB that is in a piece."""
        futures, at = [], 0
        while at < len(piece):
            chunk, before = divmod(self._done + at, CHUNK_BYTES)
            part = piece[at : at + CHUNK_BYTES - before]
            if chunk == len(self._sums):
                self._sums.append(hashlib.sha256())
            futures.append(self._workers.hashing.submit(self._sums[chunk].update, part.data))
            at += len(part)
        return futures
