"""Files that may be compressed, read as a stream of bytes."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from spsample.errors import DataError, require_module
from spsample.store.folder import file_error, system_errors

COMPRESSED = (".gz", ".zst", ".zstd")
ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8, as spreadsheets write it
MAX_ROW = 1 << 26
_FORMS = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"PK\x03\x04", "a zip archive (as .npz and .pt files are)"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"PAR1", "Parquet"),
    (b"\x89HDF", "HDF5"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
)
"""First bytes of files that are no plain text."""


def binary_form(head: bytes) -> str | None:
    r"""Return the form of a file that is no text, by its first bytes; None for text.

    Examples
    --------
    >>> binary_form(b"PAR1..."), binary_form(b"0 1"), binary_form(b"0\0")
    ('Parquet', None, 'binary')
    """
    known = next((form for mark, form in _FORMS if head.startswith(mark)), None)
    if known == "bzip2" and head[4:10] != b"1AY&SY":
        known = None
    return known or ("binary" if b"\0" in head else None)


def compression(path: Path) -> str | None:
    """Return ``"gzip"`` or ``"zstd"`` for a file that is compressed so, by its first bytes.

    Raises
    ------
    DataError
        If there is no such file.
    """
    require_file(path)
    with system_errors(path, "a file that can be read"), path.open("rb") as file:
        form = binary_form(file.read(16))
    return form if form in ("gzip", "zstd") else None


def inner_suffix(path: Path) -> str:
    """Return the suffix for the form of a file, in lower case, without that of a compression.

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
        raise file_error(path, what, "a file to convert")


def require_utf8(path: Path, text: bytes, first_line: int = 1) -> None:
    """Refuse text that is no UTF-8; its beginning is in line `first_line` of the file.

    Raises
    ------
    DataError
        It names the line.
    """
    try:
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError as error:
        begin = text.rfind(b"\n", 0, error.start) + 1
        line = text[begin:].partition(b"\n")[0].decode("utf-8", "replace").strip()
        number = first_line + text.count(b"\n", 0, begin)
        given = f"{line if len(line) <= 80 else line[:77] + '...'!r} in line {number}, which is no UTF-8"
        hint = "Where it is Latin-1, this makes UTF-8 of it: iconv -f latin1 -t utf-8 FILE > NEW"
        raise file_error(path, given, "text in UTF-8", hint) from None


def utf8_blocks(path: Path, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the blocks of whole lines of a file, each checked by `require_utf8`."""
    line = 1
    for text in blocks:
        require_utf8(path, text, line)
        line += text.count(b"\n")
        yield text


def blocks(path: Path, size: int, end_of: Callable[[bytes], int], too_long: str, expected: str) -> Iterator[bytes]:
    """Yield a file in blocks of about `size` bytes, cut at the ends that `end_of` returns, without a byte order mark.

    `end_of` returns where the last whole row of some bytes ends, 0 where none does; `too_long` is what
    an error says of a longer row, with its bytes in braces.

    Raises
    ------
    DataError
        Of `open_bytes`; or where a row has more than 64 MiB.
    """
    with open_bytes(path) as file:
        rest = bytes(file.read(len(ORDER_MARK))).removeprefix(ORDER_MARK)
        while data := bytes(file.read(max(size, 1))):
            rest += data
            if end := end_of(rest):
                yield rest[:end]
                rest = rest[end:]
            elif len(rest) > MAX_ROW:
                raise file_error(path, too_long.format(len(rest)), expected)
    if rest:
        yield rest


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """Open a file for reading; gzip and zstd are decompressed. Damage found while reading names the file.

    Raises
    ------
    DataError
        If the file cannot be read, or is truncated.
    MissingDependencyError
        For zstd without pyarrow.
    """
    form = compression(path)
    try:
        with ExitStack() as stack:
            file: Any
            if form == "gzip":
                file = stack.enter_context(gzip.open(path, "rb"))
            elif form == "zstd":
                pyarrow = require_module("pyarrow", needed_for=f"reading {path.name}", extra="convert")
                raw = stack.enter_context(pyarrow.OSFile(str(path)))
                file = stack.enter_context(pyarrow.CompressedInputStream(raw, "zstd"))
            else:
                file = stack.enter_context(path.open("rb"))
            yield file
    except DataError:
        raise
    except (EOFError, zlib.error, OSError) as error:
        given = f"a file that cannot be read to its end ({error})"
        raise file_error(path, given, "a whole file, not truncated or damaged") from error


@contextmanager
def decompressed(path: Path, folder: Path) -> Iterator[Path]:
    """Write a decompressed copy of a file into a folder, for as long as it takes to open or map it.

    Raises
    ------
    DataError
        As `open_bytes`.
    """
    copy = folder / f"unpacked{inner_suffix(path)}"
    try:
        with system_errors(copy, "room on the disk for a decompressed copy"), copy.open("wb") as out:
            out.writelines(blocks(path, 1 << 22, len, "", ""))
        yield copy
    finally:
        copy.unlink(missing_ok=True)
