"""Archives of arrays (``.npz``), read with the sizes in them checked before memory is taken."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from spsample.errors import DataError
from spsample.store.npy import NpyHeader, read_header

_SUFFIX = ".npy"
_LONGEST_END, _COUNT_AT, _COUNTED_ELSEWHERE = 22 + 65535, 10, 65535
"""Of the record at the end of an archive: its bytes with a comment, where its count of members is, and the count of
archives that have more."""
_PIECE = 1 << 20
_MOST_DEFLATED = 1032
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
    order: Any = header.order
    array = np.empty(header.shape, header.dtype, order)
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
            _check_count(file, len(archive.infolist()))
            yield archive
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged bytes
        raise DataError(argument=str(path), given=f"an unreadable file ({error})", expected=expected) from error


def _check_count(file: IO[bytes], found: int) -> None:
    """Compare the members found with the number at the archive's end: a damaged entry of the directory hides others."""
    file.seek(-min(file.seek(0, 2), _LONGEST_END), 2)
    tail = file.read()
    start = tail.rfind(b"PK\x05\x06") + _COUNT_AT
    stated = int.from_bytes(tail[start : start + 2], "little")
    if stated not in (found, _COUNTED_ELSEWHERE):
        raise ValueError(f"{found} members where the archive counts {stated}")


def _check_size(info: zipfile.ZipInfo, end: int, size: int) -> None:
    most = info.compress_size if info.compress_type == zipfile.ZIP_STORED else _MOST_DEFLATED * info.compress_size
    if end != info.file_size or info.compress_size > size or info.file_size > most:
        stated = f"{info.file_size} bytes in {info.compress_size} of the archive's {size}"
        raise ValueError(f"{info.filename} is said to be of {stated}, with an array that ends at {end}")
