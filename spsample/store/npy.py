"""Arrays in ``.npy`` files: the one reader of their headers, and maps of files that were checked against them."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.errors import DataError

_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_LARGEST_HEADER = 4096
_PARSES = 4
_OF_ARCHIVES = b"PK\x03\x04"


class NpyHeader(NamedTuple):
    """What a header says.

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
    def order(self) -> str:
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
            return read(file, max_header_size=_LARGEST_HEADER)
        file.seek(begin)
    return read(file, max_header_size=_LARGEST_HEADER)


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
    order: Any = header.order
    return np.memmap(path, header.dtype, "r", offset=header.begin, shape=header.shape, order=order)
