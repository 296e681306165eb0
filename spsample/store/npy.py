"""Arrays in ``.npy`` files and ``.npz`` archives, read whole or mapped: headers and sizes are checked first."""

from __future__ import annotations

import math
import mmap
import os
import stat
import sys
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.errors import DataError
from spsample.store.folder import file_error
from spsample.store.layout import ArraySpec

_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_MAX_HEADER = 4096
_PARSES = 4
_OF_ARCHIVES = b"PK\x03\x04"


class NpyHeader(NamedTuple):
    """Contents of a header.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    is_fortran : bool
        Whether columns come first.
    begin : int
        The byte at which the elements begin.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    begin: int

    @property
    def order(self) -> Literal["C", "F"]:
        """As NumPy calls it."""
        return "F" if self.is_fortran else "C"

    @property
    def end(self) -> int:
        """The byte at which the elements end."""
        return self.begin + math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> NpyHeader:
    """Read the header of an array, from the beginning of a file.

    Raises
    ------
    ValueError
        Whatever is wrong with it. NumPy has Python parse a literal, and damaged ones raise many types.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.ones((3, 2), np.float16))
    >>> header = read_header(io.BytesIO(file.getvalue()))
    >>> header.shape, header.dtype, header.begin, header.end
    ((3, 2), dtype('float16'), 128, 140)
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in _READERS:
            raise ValueError(f"version {version} of the form .npy")
        shape, is_fortran, dtype = _parsed(file, _READERS[version])
        begin = file.tell()
        np.broadcast_to(np.empty((), "V1"), shape)  # refuses negative, too large and too many sizes
        if any(isinstance(size, bool) for size in shape) or (dtype.itemsize == 0 and 0 not in shape):
            raise ValueError(f"shape {shape} of dtype {dtype.str!r}")
    except Exception as error:
        raise ValueError(f"a damaged header ({error})") from error
    if dtype.hasobject:
        raise ValueError(f"pickled objects (dtype {dtype.str!r}), which are not read")
    return NpyHeader(shape, dtype, is_fortran, begin)


def _parsed(file: IO[bytes], read: Any) -> Any:
    """Shape, whether columns come first, and dtype.

    CPython 3.11 at times cannot parse a literal in several threads at once (its issue 106905): it is tried again.
    """
    begin = file.tell()
    for _ in range(_PARSES - 1):
        with suppress(SystemError):
            return read(file, max_header_size=_MAX_HEADER)
        file.seek(begin)
    return read(file, max_header_size=_MAX_HEADER)


def npy_header(path: Path, expected: str = "an .npy file", argument: str | None = None) -> NpyHeader:
    """Read the header of an ``.npy`` file that has all of its elements.

    Parameters
    ----------
    path : Path
    expected : str
        What it should be, for the message.
    argument : str, optional
        What gave the path, for the message. None: the path speaks for itself.

    Raises
    ------
    DataError
        If there is no such file, or it is damaged, too short, or of Python objects.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would wait for a writer
            raise ValueError("no regular file")
        with path.open("rb") as file:
            if file.read(len(_OF_ARCHIVES)) == _OF_ARCHIVES:
                raise ValueError("several arrays (.npz)")
            file.seek(0)
            header, size = read_header(file), os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or f"an unreadable file: {error}"
        given = reason if argument is None else f"{str(path)!r}: {reason}"
        raise DataError(argument=argument or str(path), given=given, expected=expected) from error
    if size < header.end:
        given = f"{size} bytes" if argument is None else f"{str(path)!r} of {size} bytes"
        expected = f"{header.end} bytes for its dtype and shape"
        raise DataError(argument=argument or str(path), given=given, expected=expected)
    return header


def map_npy(path: Path, expected: str = "an .npy file", argument: str | None = None) -> NDArray[Any]:
    """Map an ``.npy`` file for reading; parameters and errors as of `npy_header`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.npy"
    >>> np.save(path, np.arange(3))
    >>> map_npy(path)
    memmap([0, 1, 2])
    """
    header = npy_header(path, expected, argument)
    if header.begin == header.end:
        return np.empty(header.shape, header.dtype)
    return np.memmap(path, header.dtype, "r", offset=header.begin, shape=header.shape, order=header.order)


_SUFFIX = ".npy"
_MAX_END, _COUNT_AT, _COUNTED_ELSEWHERE = 22 + 65535, 10, 65535
"""Of the record at the end of an archive: its bytes with a comment, where its count of members is, and the count of
archives that have more."""
_PIECE = 1 << 20
_MAX_DEFLATED = 1032
"""Bytes that a byte of deflated data becomes, at most."""


def npz_names(path: Path, expected: str) -> frozenset[str]:
    """Return the names of the arrays of an ``.npz`` file; arguments and errors as `read_npz`."""
    with _opened(path, expected) as archive:
        return frozenset(name.removesuffix(_SUFFIX) for name in archive.namelist() if name.endswith(_SUFFIX))


def read_npz(path: Path, expected: str, only: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` file by name; nothing is unpickled, and members that are no arrays are left out.

    Each array has to fill its member exactly, so that the archive's checksum (CRC-32) covers all of it, and no member
    is larger than its bytes in the file can make it: a header that lies takes no memory.

    Parameters
    ----------
    path : Path
        The file.
    expected : str
        What it should be, for the message.
    only : collection of str, optional
        Names of the arrays to read, where others are not wanted.

    Raises
    ------
    DataError
        If the file cannot be read, or is damaged in any way.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "arrays.npz"
    >>> np.savez(path, a=np.arange(3), b=np.ones((2, 2)))
    >>> {name: array.shape for name, array in read_npz(path, "two arrays").items()}
    {'a': (3,), 'b': (2, 2)}
    """
    with _opened(path, expected) as archive:
        arrays = {}
        for info in archive.infolist():
            with archive.open(info) as member:  # compares the two names that the archive has of it, too
                name, suffix = info.filename[: -len(_SUFFIX)], info.filename[-len(_SUFFIX) :]
                if suffix != _SUFFIX or (only is not None and name not in only):
                    continue
                header = read_header(member)
                _check_size(info, header.end, path.stat().st_size)
                arrays[name] = _elements(member, header)
    return arrays


def _elements(member: Any, header: NpyHeader) -> NDArray[Any]:
    """The array that follows a header; read to the end of the member, where its checksum is compared."""
    array = np.empty(header.shape, header.dtype, header.order)
    flat = array.reshape(-1, order="A").view(np.uint8)
    pieces = (flat[begin : begin + _PIECE] for begin in range(0, flat.size, _PIECE))  # each is copied once more
    if any(member.readinto(piece) != piece.size for piece in pieces) or member.read(1):
        raise ValueError("elements that end too soon")
    return array


@contextmanager
def _opened(path: Path, expected: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive; whatever goes wrong with it is a `DataError`."""
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("no .npz archive (damaged or truncated?)")
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            file.seek(-min(file.seek(0, 2), _MAX_END), 2)
            tail, members = file.read(), len(archive.infolist())
            start = tail.rfind(b"PK\x05\x06") + _COUNT_AT
            stated = int.from_bytes(tail[start : start + 2], "little")
            if stated not in (members, _COUNTED_ELSEWHERE):  # a damaged entry of the directory hides others
                raise ValueError(f"{members} members where the archive counts {stated}")
            yield archive
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged bytes
        raise file_error(path, f"an unreadable file ({error})", expected) from error


def _check_size(info: zipfile.ZipInfo, end: int, size: int) -> None:
    most = info.compress_size if info.compress_type == zipfile.ZIP_STORED else _MAX_DEFLATED * info.compress_size
    if end != info.file_size or info.compress_size > size or info.file_size > most:
        stated = f"{info.file_size} bytes in {info.compress_size} of the archive's {size}"
        raise ValueError(f"{info.filename} is said to be of {stated}, with an array that ends at {end}")


_HEADER_START = 10
"""Bytes before the header of an ``.npy`` file of version 1.0: magic, version, length."""


def create_map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Make an ``.npy`` file of zeros and map it for writing.

    Its room on the disk is reserved first: where that fails there is an OSError now, and not a killed process when the
    pages are written.
    """
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    with path.open("r+b") as file:
        _reserve(file.fileno(), os.fstat(file.fileno()).st_size)
    return array


def shorten_map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Cut a file that `create_map` made to fewer rows, and map it again."""
    with path.open("r+b") as file:
        offset = read_header(file).begin
        file.seek(0)
        np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": shape})
        if file.tell() != offset:  # NumPy leaves room for longer numbers, so that shorter ones fit, too
            raise OSError(0, "the header of an .npy file changed its size", str(path))
        file.truncate(offset + ArraySpec(dtype, shape, ()).nbytes)
    return np.memmap(path, dtype=dtype, mode="r+", offset=offset, shape=shape)


def release_pages(array: Any) -> None:
    """Let go of the pages of an array that is the map of a file: they no longer count as memory of this process.

    What was written stays in the system's cache of the file, which is read again where the map is. Nothing is done to
    arrays in memory.

    Examples
    --------
    >>> release_pages(np.zeros(3))
    """
    _advise(array, "MADV_DONTNEED")


def read_ahead(array: Any) -> None:
    """Have the system read the file of an array that is a map in the background; nothing is done to others.

    Examples
    --------
    >>> read_ahead(np.zeros(3))
    """
    _advise(array, "MADV_WILLNEED")


def _advise(array: Any, advice: str) -> None:
    pages = _pages_of(array)
    if pages is not None and hasattr(mmap, advice):
        pages.madvise(getattr(mmap, advice))


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


FileIdentity = tuple[int, int, int]
"""Device, inode and time of change of a file, where another one may have taken its name."""


def file_identity(status: os.stat_result) -> FileIdentity:
    """Return what identifies a file."""
    return status.st_dev, status.st_ino, status.st_mtime_ns


def check_file(path: Path, spec: ArraySpec) -> FileIdentity:
    """Check that a file is the ``.npy`` file that `spec` describes: header and size. Reads no contents."""
    with _opened_array(path, spec) as (descriptor, _):
        return file_identity(os.fstat(descriptor))


def locate(path: Path, spec: ArraySpec, identity: FileIdentity | None = None) -> int:
    """At which byte of an ``.npy`` file its contents begin, after the checks of `open_map`. Reads no contents."""
    with _opened_array(path, spec, identity) as (_, begin):
        return begin


def open_map(
    path: Path,
    spec: ArraySpec,
    identity: FileIdentity | None = None,
    rows: tuple[int, int] | None = None,
) -> NDArray[Any]:
    """Map the array of an ``.npy`` file for reading, after the checks of `check_file` on the file itself.

    A file of another identity than the one that is given is refused. With `rows` only the rows from `rows[0]` to
    `rows[1] - 1` are mapped.
    """
    first, end = (0, spec.shape[0]) if rows is None else rows
    part = spec._replace(shape=(end - first, *spec.shape[1:]))
    with _opened_array(path, spec, identity) as (descriptor, offset):
        begin = offset + first * spec._replace(shape=(1, *spec.shape[1:])).nbytes
        page = begin - begin % mmap.ALLOCATIONGRANULARITY
        if part.nbytes == 0:
            array: NDArray[Any] = np.zeros(part.shape, part.dtype)
            array.flags.writeable = False
            return array
        try:
            pages = mmap.mmap(descriptor, begin - page + part.nbytes, access=mmap.ACCESS_READ, offset=page)
        except OSError as error:
            raise _refusal(path, f"a file that cannot be mapped ({error.strerror})", "a memory map") from error
    return np.frombuffer(pages, part.dtype, part.nbytes // part.dtype.itemsize, begin - page).reshape(part.shape)


@contextmanager
def _opened_array(path: Path, spec: ArraySpec, identity: FileIdentity | None = None) -> Iterator[tuple[int, int]]:
    """Open and check a file; its descriptor, which is closed at the end, and where its contents begin."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
    except OSError as error:
        raise _refusal(path, error.strerror or str(error), "a readable .npy file, as meta.json says") from error
    try:
        status = os.fstat(descriptor)
        if identity is not None and file_identity(status) != identity:
            hint = "The store was replaced or changed meanwhile: open it again."
            raise file_error(path, "another file than when the store was opened", "the same file", hint)
        if not stat.S_ISREG(status.st_mode):
            raise _refusal(path, "no regular file", "an .npy file")
        yield descriptor, _checked(path, descriptor, spec, status.st_size)
    finally:
        os.close(descriptor)


def _checked(path: Path, descriptor: int, spec: ArraySpec, size: int) -> int:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        try:
            shape, dtype, fortran, offset = read_header(file)
        except ValueError as error:
            raise _refusal(path, str(error), "an .npy file") from error
        file.seek(_HEADER_START)
        header = file.read(offset - _HEADER_START)
    if (shape, dtype.str, fortran) != (spec.shape, spec.dtype.str, False):
        given = f"dtype {dtype.str!r} and shape {shape}{', columns first' if fortran else ''}"
        raise _refusal(path, given, f"dtype {spec.dtype.str!r} and shape {spec.shape}, as meta.json says")
    # Without the blanks behind it; other spellings of the same are damage, too.
    written = f"{{'descr': {spec.dtype.str!r}, 'fortran_order': False, 'shape': {spec.shape!r}, }}"
    if header.rstrip(b" \n") != written.encode("latin-1"):
        raise _refusal(path, f"a damaged header {header!r}", "the one that NumPy writes")
    if size != offset + spec.nbytes:
        raise _refusal(path, f"{size} bytes", f"{offset + spec.nbytes} bytes for its dtype and shape")
    if offset % spec.dtype.itemsize:
        raise _refusal(path, f"contents at byte {offset}", "contents that are aligned")
    return offset


def _refusal(path: Path, given: str, expected: str) -> DataError:
    return file_error(path, given, expected, "The store is damaged or incomplete: copy or convert it again.")
