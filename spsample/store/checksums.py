"""SHA-256: of arrays, one per 64 MiB, computed by several threads; of files, recorded beside them.

The record of a file is ``NAME.sha256``, as ``sha256sum`` writes and checks it: every bit of such a file counts,
whatever its form, and any other program reads it as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.threads import usable_cores
from spsample.errors import DataError
from spsample.store.layout import CHUNK_BYTES

_MOST_THREADS = 16
_RECORD = re.compile(rb"([0-9a-f]{64}) [ *]([^\n]+)\n?")
_LARGEST_RECORD = 4096
_PIECE = 1 << 20


class Checksum(NamedTuple):
    """SHA-256 of one piece of one array."""

    name: str
    chunk: int
    nbytes: int
    sha256: str


def checksums(arrays: Mapping[str, NDArray[Any]]) -> Iterator[Checksum]:
    """Yield the checksums of contiguous arrays, piece after piece, array after array.

    Nothing is copied, and only a few pieces for each thread are under way at a time: pages of memory maps are read as
    they are hashed. The time is that of SHA-256, about 0.5 to 2 GB/s for each thread.

    Examples
    --------
    >>> [(c.name, c.nbytes, c.sha256[:8]) for c in checksums({"indptr": np.zeros(2, np.int64)})]
    [('indptr', 16, '374708ff')]
    """
    threads = min(usable_cores(), _MOST_THREADS)
    with ThreadPoolExecutor(threads, thread_name_prefix="sha256") as pool:
        waiting: list[Future[Checksum]] = []
        try:
            for name, chunk, piece in _pieces(arrays.items()):
                waiting.append(pool.submit(_checksum, name, chunk, piece))
                if len(waiting) > 2 * threads:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


def _pieces(arrays: Iterable[tuple[str, NDArray[Any]]]) -> Iterator[tuple[str, int, NDArray[np.uint8]]]:
    for name, array in arrays:
        flat = array.reshape(-1).view(np.uint8)
        for chunk in range(-(-flat.nbytes // CHUNK_BYTES)):
            yield name, chunk, flat[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]


def _checksum(name: str, chunk: int, piece: NDArray[np.uint8]) -> Checksum:
    return Checksum(name, chunk, piece.nbytes, hashlib.sha256(piece.data).hexdigest())


# ------------------------------------------------------------------------------------------ recorded beside files


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
