"""Memory maps of ``.npy`` files: made with their room on the disk reserved, opened after a check of their headers."""

from __future__ import annotations

import mmap
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.errors import DataError
from spsample.store.folder import file_error
from spsample.store.layout import ArraySpec
from spsample.store.npy import read_header

ACCESS = ("normal", "random", "sequential", "willneed")
"""Advice about maps: the system's own read-ahead; pages one by one; far ahead; the whole file at once."""

_HEADER_START = 10
"""Bytes before the header of an ``.npy`` file of version 1.0: magic, version, length."""


def create_map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Make an ``.npy`` file of zeros and map it for writing.

    Its room on the disk is reserved first: where that fails there is an OSError now, and not a killed process when the
    pages are written.
    """
    size = ArraySpec(dtype, shape, ()).nbytes
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": shape})
        offset = file.tell()
        file.flush()
        _reserve(file.fileno(), offset + size)
    if size == 0:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r+", offset=offset, shape=shape)


def shorten_map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Cut a file that `create_map` made to fewer rows, and map it again."""
    size = ArraySpec(dtype, shape, ()).nbytes
    with path.open("r+b") as file:
        offset = read_header(file).begin
        file.seek(0)
        np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": shape})
        if file.tell() != offset:  # NumPy leaves room for longer numbers, so that shorter ones fit, too
            raise OSError(0, "the header of an .npy file changed its size", str(path))
        file.truncate(offset + size)
    if size == 0:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r+", offset=offset, shape=shape)


def release_pages(array: Any) -> None:
    """Let go of the pages of an array that is the map of a file: they no longer count as memory of this process.

    What was written stays in the system's cache of the file, which is read again where the map is. Nothing is done to
    arrays in memory.

    Examples
    --------
    >>> release_pages(np.zeros(3))
    """
    pages = _pages_of(array)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def load_pages(array: Any) -> None:
    """Read the file of an array that is a map, from its beginning to its end, and have its pages at hand.

    They then cost no fault each where they are used in any order. Where the system cannot, nothing is done.

    Examples
    --------
    >>> load_pages(np.zeros(3))
    """
    pages = _pages_of(array)
    if pages is None or sys.platform != "linux":
        return
    with suppress(OSError):  # of a kernel before 5.14
        for first in range(0, len(pages), _LOADED_AT_ONCE):
            pages.madvise(_POPULATE_READ, first, min(_LOADED_AT_ONCE, len(pages) - first))


_POPULATE_READ = 22
"""MADV_POPULATE_READ of Linux, for which Python has no name."""
_LOADED_AT_ONCE = 32 * 2**20


def _pages_of(array: Any) -> mmap.mmap | None:
    """Return the map that an array is a view of, None for one in memory."""
    owner = array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:  # macOS
        os.truncate(descriptor, size)


class FileIdentity(NamedTuple):
    """Facts that identify a file where another one may have taken its name."""

    device: int
    inode: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        """Return that of a file."""
        return cls(status.st_dev, status.st_ino, status.st_mtime_ns)


def check_file(path: Path, spec: ArraySpec) -> FileIdentity:
    """Check that a file is the ``.npy`` file that `spec` describes: header and size. Reads no contents."""
    descriptor, _ = _open(path, spec)
    try:
        return FileIdentity.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def locate(path: Path, spec: ArraySpec, identity: FileIdentity | None = None) -> int:
    """At which byte of an ``.npy`` file its contents begin, after the checks of `open_map`. Reads no contents."""
    descriptor, begin = _open(path, spec, identity)
    os.close(descriptor)
    return begin


def open_map(
    path: Path,
    spec: ArraySpec,
    access: str = "normal",
    identity: FileIdentity | None = None,
    rows: tuple[int, int] | None = None,
) -> NDArray[Any]:
    """Map the array of an ``.npy`` file for reading, after the checks of `check_file` on the file itself.

    `access` is one of `ACCESS`: advice to the system on the use of its pages. A file of another identity than
    the one that is given is refused. With `rows` only the rows from `rows[0]` to `rows[1] - 1` are mapped.
    """
    descriptor, offset = _open(path, spec, identity)
    first, end = (0, spec.shape[0]) if rows is None else rows
    part = spec._replace(shape=(end - first, *spec.shape[1:]))
    begin = offset + first * spec._replace(shape=(1, *spec.shape[1:])).nbytes
    page = begin - begin % mmap.ALLOCATIONGRANULARITY
    try:
        if part.nbytes == 0:
            array: NDArray[Any] = np.zeros(part.shape, part.dtype)
            array.flags.writeable = False
            return array
        pages = mmap.mmap(descriptor, begin - page + part.nbytes, access=mmap.ACCESS_READ, offset=page)
    except OSError as error:
        raise _refusal(path, f"a file that cannot be mapped ({error.strerror})", "a memory map") from error
    finally:
        os.close(descriptor)
    _advise(pages, access)
    return np.frombuffer(pages, part.dtype, part.nbytes // part.dtype.itemsize, begin - page).reshape(part.shape)


def _advise(pages: mmap.mmap, access: str) -> None:
    """Advise the system on the use of pages, where it takes advice."""
    advice = getattr(mmap, f"MADV_{access.upper()}", None)
    if advice is not None:
        pages.madvise(advice)


def _open(path: Path, spec: ArraySpec, identity: FileIdentity | None = None) -> tuple[int, int]:
    """Open and check a file; its descriptor and where its contents begin."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
    except OSError as error:
        raise _refusal(path, error.strerror or str(error), "a readable .npy file, as meta.json says") from error
    try:
        if identity is not None and FileIdentity.of(os.fstat(descriptor)) != identity:
            hint = "The store was replaced or changed meanwhile: open it again."
            raise file_error(path, "another file than when the store was opened", "the same file", hint)
        return descriptor, _checked(path, descriptor, spec)
    except BaseException:
        os.close(descriptor)
        raise


def _checked(path: Path, descriptor: int, spec: ArraySpec) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise _refusal(path, "no regular file", "an .npy file")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        try:
            shape, dtype, fortran, offset = read_header(file)
        except ValueError as error:
            raise _refusal(path, str(error), "an .npy file") from error
        file.seek(_HEADER_START)
        header = file.read(offset - _HEADER_START)
    if (shape, dtype.str, fortran) != (spec.shape, spec.dtype.str, False):
        given = f"dtype {dtype.str!r} and shape {shape}{', columns first' if fortran else ''}"
        raise _refusal(path, given, f"dtype {spec.dtype.str!r} and shape {spec.shape}, as meta.json says")
    if header.rstrip(b" \n") != _header_text(spec):
        raise _refusal(path, f"a damaged header {header!r}", "the one that NumPy writes")
    if status.st_size != offset + spec.nbytes:
        raise _refusal(path, f"{status.st_size} bytes", f"{offset + spec.nbytes} bytes for its dtype and shape")
    if offset % spec.dtype.itemsize:
        raise _refusal(path, f"contents at byte {offset}", "contents that are aligned")
    return offset


def _header_text(spec: ArraySpec) -> bytes:
    """The header of an ``.npy`` file, without the blanks behind it: other spellings of the same are damage, too."""
    return f"{{'descr': {spec.dtype.str!r}, 'fortran_order': False, 'shape': {spec.shape!r}, }}".encode("latin-1")


def _refusal(path: Path, given: str, expected: str) -> DataError:
    return file_error(path, given, expected, "The store is damaged or incomplete: copy or convert it again.")
