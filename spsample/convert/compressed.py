"""Files that may be compressed, read as a stream of bytes."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spsample.errors import DataError, MissingDependencyError, require_module
from spsample.store.folder import system_errors

__all__ = ["COMPRESSED", "decompressed", "inner_suffix", "open_bytes", "require_file"]

COMPRESSED = (".gz", ".zst", ".zstd")


def inner_suffix(path: Path) -> str:
    """Return the suffix that tells the form, in lower case, without that of a compression.

    Examples
    --------
    >>> inner_suffix(Path("web.TXT.gz"))
    '.txt'
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def require_file(path: Path) -> None:
    """Refuse a path at which there is no file to read.

    Raises
    ------
    DataError
        If it does not exist, or is a folder.
    """
    if not os.path.isfile(path):  # of any name, where Path.is_file raises for one that is too long
        what = "a folder" if os.path.isdir(path) else "no file there"
        raise DataError(argument=str(path), given=what, expected="a file to convert")


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """Open a file for reading; ``.gz`` and ``.zst`` are decompressed. Damage found while reading names the file.

    Raises
    ------
    DataError
        If the file cannot be read, or is truncated.
    MissingDependencyError
        For ``.zst`` without pyarrow.
    """
    require_file(path)
    try:
        with _opened(path) as file:
            yield file
    except (DataError, MissingDependencyError):
        raise
    except (EOFError, zlib.error, OSError) as error:
        given = f"a file that cannot be read to its end ({error})"
        raise DataError(argument=str(path), given=given, expected="a whole file, not truncated or damaged") from error


@contextmanager
def decompressed(path: Path, folder: Path) -> Iterator[Path]:
    """Write a decompressed copy of a file into a folder, for as long as it takes to open or map it.

    Raises
    ------
    DataError
        As `open_bytes`.
    """
    copy = folder / path.stem
    try:
        with system_errors(copy, "room on the disk for a decompressed copy"), copy.open("wb") as out:
            for data in _pieces(path):
                out.write(data)
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def _pieces(path: Path) -> Iterator[bytes]:
    with open_bytes(path) as file:
        while data := bytes(file.read(1 << 22)):
            yield data


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    suffix = path.suffix.lower()
    if suffix == ".gz":
        with gzip.open(path, "rb") as file:
            yield file
    elif suffix in COMPRESSED:
        pyarrow = require_module("pyarrow", needed_for=f"reading {path.name}", extra="convert")
        with pyarrow.OSFile(str(path)) as raw, pyarrow.CompressedInputStream(raw, "zstd") as file:
            yield file
    else:
        with path.open("rb") as file:
            yield file
