"""Files whose SHA-256 is recorded beside them: ``NAME.sha256``, as ``sha256sum`` writes and checks it.

Every bit of such a file counts, whatever its form, and any other program reads it as it is.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from spsample.errors import DataError

__all__ = ["file_sha256", "record", "record_path", "recorded_sha256", "require_recorded"]

_RECORD = re.compile(rb"([0-9a-f]{64}) [ *]([^\n]+)\n?")
_LARGEST_RECORD = 4096
_PIECE = 1 << 20


def record_path(path: Path) -> Path:
    """Return where the checksum of a file stands.

    Examples
    --------
    >>> record_path(Path("graphs/products/meta.json")).name
    'meta.json.sha256'
    """
    return path.with_name(f"{path.name}.sha256")


def record(path: Path, sha256: str) -> bytes:
    r"""Return the contents of the file of a checksum.

    Examples
    --------
    >>> record(Path("bulks/a.npz"), "0123")
    b'0123  a.npz\n'
    """
    return f"{sha256}  {path.name}\n".encode()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of the bytes of a file, which is read in pieces.

    Raises
    ------
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> file_sha256(path)[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def recorded_sha256(path: Path) -> str | None:
    """Return the checksum that is recorded of a file, None where there is no record.

    Raises
    ------
    DataError
        If the record is no line of ``sha256sum`` about this file.
    OSError
        If it cannot be read.
    """
    try:
        with record_path(path).open("rb") as file:
            line = file.read(_LARGEST_RECORD)
    except FileNotFoundError:
        return None
    match = _RECORD.fullmatch(line)
    if match is None or match.group(2) != path.name.encode():
        expected = f"the line that sha256sum writes about {path.name}"
        hint = "This file or the one that it is about is damaged: copy or make both again."
        raise DataError(argument=str(record_path(path)), given=repr(line[:80])[1:], expected=expected, hint=hint)
    return match.group(1).decode("ascii")


def require_recorded(path: Path, sha256: str, recorded: str, hint: str) -> None:
    """Refuse a file whose checksum is another one than the one that is recorded.

    Raises
    ------
    DataError
        With that hint.
    """
    if sha256 != recorded:
        given = f"another checksum than {record_path(path).name} has"
        raise DataError(argument=str(path), given=given, expected="the bytes that were written", hint=hint)
