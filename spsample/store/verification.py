"""Checksums of the files of a store, and whether their contents are a graph."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import check_range, first_bad
from spsample.common.threads import in_order, usable_cores
from spsample.errors import InputError
from spsample.store.folder import file_error
from spsample.store.layout import CHUNK_BYTES, ArraySpec, array_file
from spsample.store.validation import check_not_negative, check_weights

_MAX_THREADS = 16
_RECORD = re.compile(rb"([0-9a-f]{64}) [ *]([^\n]+)\n?")
_MAX_RECORD = 4096
_READ_BYTES = 1 << 20


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

    def checksum(name: str, chunk: int) -> Checksum:
        piece = arrays[name].reshape(-1).view(np.uint8)[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
        return Checksum(name, chunk, piece.nbytes, hashlib.sha256(piece.data).hexdigest())

    threads = min(usable_cores(), _MAX_THREADS)
    pieces = ((name, i) for name, array in arrays.items() for i in range(-(-array.nbytes // CHUNK_BYTES)))
    yield from in_order((partial(checksum, *piece) for piece in pieces), threads, 2 * threads, "sha256")


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
        while piece := file.read(_READ_BYTES):
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
            line = file.read(_MAX_RECORD)
    except FileNotFoundError:
        return None
    match = _RECORD.fullmatch(line)
    if match is None or match.group(2) != path.name.encode():
        expected = f"the line that sha256sum writes about {path.name}"
        hint = "This file or the one that it is about is damaged: copy or make both again."
        raise file_error(record_path(path), repr(line[:80])[1:], expected, hint)
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
        raise file_error(path, given, "the bytes that were written", hint)


_ENTRIES_AT_ONCE = 1 << 19


def num_repeated(indptr: NDArray[np.int64], indices: NDArray[Any]) -> int:
    """Return how many entries have the same source as the one before them in their row.

    Parameters
    ----------
    indptr, indices
        CSR arrays, int64 and int32 or int64, the entries of a row sorted; mapped ones are read in pieces.

    Examples
    --------
    >>> num_repeated(np.array([0, 3, 4]), np.array([1, 1, 1, 1]))
    2
    """
    equal = 0
    for first in range(0, len(indices) - 1, _ENTRIES_AT_ONCE):
        part = indices[first : first + _ENTRIES_AT_ONCE + 1]
        equal += int(np.count_nonzero(part[1:] == part[:-1]))
    for first in range(0, len(indptr) - 1, _ENTRIES_AT_ONCE):
        bounds = np.asarray(indptr[first : first + _ENTRIES_AT_ONCE + 1])
        begins = bounds[:-1][(bounds[:-1] > 0) & (bounds[1:] > bounds[:-1])]  # of rows that are not empty
        equal -= int(np.count_nonzero(indices[begins] == indices[begins - 1]))
    return equal


def num_with_edges(indptr: NDArray[np.int64], indices: NDArray[Any]) -> int:
    """Return how many vertices are the end of an edge. Memory: 1 byte for each of at most 2^26 vertices at a time.

    Examples
    --------
    >>> num_with_edges(np.array([0, 1, 1, 1]), np.array([2]))
    2
    """
    count, n, room = 0, len(indptr) - 1, 1 << 26
    for first in range(0, n, room):
        last = min(first + room, n)
        seen = np.zeros(last - first, np.bool_)
        for begin in range(first, last, _ENTRIES_AT_ONCE):
            end = min(begin + _ENTRIES_AT_ONCE, last)
            seen[begin - first : end - first] = np.diff(indptr[begin : end + 1]) > 0
        for begin in range(0, len(indices), _ENTRIES_AT_ONCE):
            part = indices[begin : begin + _ENTRIES_AT_ONCE]
            seen[part[(part >= first) & (part < last)] - first] = True
        count += int(np.count_nonzero(seen))
    return count


_NUMBERS_AT_ONCE = 2**22
"""Entries looked at together: temporary arrays take some tens of MiB."""


def verify_checksums(
    path: Path, arrays: Mapping[str, NDArray[Any]], specs: Mapping[str, ArraySpec], report: Callable[[int], None]
) -> None:
    """Compare the checksums of the arrays with those that `specs` holds; `report` is called with the bytes done."""
    done = 0
    for piece in checksums(arrays):
        if piece.sha256 != specs[piece.name].sha256[piece.chunk]:
            raise file_error(
                path / array_file(piece.name),
                f"another checksum in piece {piece.chunk} (of 64 MiB, from 0; the array's bytes "
                f"{piece.chunk * CHUNK_BYTES} to {piece.chunk * CHUNK_BYTES + piece.nbytes})",
                "the bytes that were written",
                "The file is damaged: copy or convert it again.",
            )
        done += piece.nbytes
        report(done)


def verify_structure(
    path: Path, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], report: Callable[[int], None]
) -> None:
    """Check the contents of all arrays that have a meaning; `report` is called with the bytes done."""
    done = 0
    for name, array in arrays.items():
        step = max(1, _NUMBERS_AT_ONCE * len(array) // max(array.size, 1))  # rows
        for start in range(0, len(array), step):
            try:
                _check_piece(name, arrays, meta, start, array[start : start + step])
            except InputError as error:
                where = f"{error.given} of the piece that begins at {start}" if start else error.given
                argument = str(path / array_file(name))
                raise file_error(argument, where, error.expected) from None
            report(done + array.nbytes * min(start + step, len(array)) // max(len(array), 1))
        done += array.nbytes
        report(done)


def _check_piece(
    name: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], start: int, piece: NDArray[Any]
) -> None:
    """Check a piece of an array, which begins at `start`, by what the array means; others are not read."""
    n = int(meta["num_nodes"])
    if name in ("indptr", "names_ptr", "vertex_indptr"):
        end = int(meta["num_edges"]) if name != "names_ptr" else len(arrays["names_data"])
        _check_starts(name, arrays[name], piece, start, end)
    elif name == "indices":
        _check_columns(arrays, piece, start, n)
    elif name in ("row_of_vertex", "vertex_of_row"):
        _check_inverse(name, piece, start, arrays["vertex_of_row" if name == "row_of_vertex" else "row_of_vertex"])
    elif name == "data":
        check_weights(name, piece)
    elif name == "original_ids":
        check_not_negative(name, piece)
    elif name == "edge_ids":
        rows = min((len(arrays[key]) for key in meta.get("edge_features", [])), default=2**63 - 1)
        check_range(name, piece, rows, "edge ids, which lead to rows of the edge features,")
    elif name in ("train_idx", "val_idx", "test_idx"):
        check_range(name, piece, n, "vertex ids")
    elif piece.dtype.kind == "f" and not np.isfinite(piece).all():
        raise InputError(argument=name, given=first_bad(~np.isfinite(piece), piece), expected="finite numbers")


def _check_starts(name: str, array: NDArray[Any], piece: NDArray[Any], start: int, end: int) -> None:
    """Check row starts: from 0 to `end`, never falling, also from one piece to the next."""
    before = int(array[start - 1]) if start else 0
    falls = np.flatnonzero(np.diff(piece, prepend=before) < 0)
    if len(falls):
        given = f"{piece[falls[0]]} at position {int(falls[0])}, less than the one before"
        raise InputError(argument=name, given=given, expected="row starts that never fall")
    last = start + len(piece) == len(array)
    if (start == 0 and int(piece[0]) != 0) or (last and int(piece[-1]) != end):
        raise InputError(argument=name, given=f"rows from {array[0]} to {array[-1]}", expected=f"rows from 0 to {end}")


def _check_inverse(name: str, piece: NDArray[Any], start: int, inverse: NDArray[Any]) -> None:
    """Check that a piece of a permutation, which begins at `start`, is undone by its inverse."""
    check_range(name, piece, len(inverse), "rows and vertices")
    wrong = np.flatnonzero(inverse[piece] != np.arange(start, start + len(piece)))
    if len(wrong):
        given = f"{piece[wrong[0]]} at position {int(wrong[0])}, from which the other map does not lead back"
        raise InputError(argument=name, given=given, expected="row_of_vertex and vertex_of_row that undo each other")


def _check_columns(arrays: Mapping[str, NDArray[Any]], piece: NDArray[Any], start: int, n: int) -> None:
    """Check that columns are vertices, and fall only where a row begins."""
    check_range("indices", piece, n, "vertex ids")
    before = arrays["indices"][start - 1] if start else piece[0]
    falls = np.flatnonzero(np.concatenate([[before], piece[:-1]]) > piece)
    indptr = arrays["indptr"]
    rows = np.searchsorted(indptr, falls + start)
    inner = indptr[np.minimum(rows, len(indptr) - 1)] != falls + start
    if inner.any():
        at = int(falls[np.argmax(inner)])
        row = int(np.searchsorted(indptr, at + start, side="right")) - 1
        given = f"{piece[at]} at position {at}, less than the one before in row {row}"
        raise InputError(argument="indices", given=given, expected="sources that ascend within each row")
