"""Checks of everything in a store, piece by piece: checksums, and what the arrays of a graph must satisfy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import check_range, first_bad
from spsample.errors import DataError, InputError
from spsample.store.checksums import checksums
from spsample.store.layout import CHUNK_BYTES, ArraySpec, array_file
from spsample.store.validation import check_not_negative, check_weights

_PIECE = 2**22
"""Entries looked at together: temporary arrays take some tens of MiB."""

_Check = Callable[[NDArray[Any], int], None]


def verify_checksums(
    path: Path, arrays: Mapping[str, NDArray[Any]], specs: Mapping[str, ArraySpec], report: Callable[[int], None]
) -> None:
    """Compare the checksums of the arrays with those that `specs` holds; `report` is told the bytes done."""
    done = 0
    for piece in checksums(arrays):
        if piece.sha256 != specs[piece.name].sha256[piece.chunk]:
            raise DataError(
                argument=str(path / array_file(piece.name)),
                given=f"another checksum in piece {piece.chunk} (of 64 MiB, from 0; the array's bytes "
                f"{piece.chunk * CHUNK_BYTES} to {piece.chunk * CHUNK_BYTES + piece.nbytes})",
                expected="the bytes that were written",
                hint="The file is damaged: copy or convert it again.",
            )
        done += piece.nbytes
        report(done)


def verify_structure(
    path: Path, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], report: Callable[[int], None]
) -> None:
    """Check the contents of all arrays that have a meaning; `report` is told the bytes done."""
    done = 0
    for name, array in arrays.items():
        check = _check_of(name, arrays, meta)
        step = max(1, _PIECE * len(array) // max(array.size, 1))  # rows
        for start in range(0, len(array) if check else 0, step):
            try:
                check(array[start : start + step], start)  # type: ignore[misc]
            except InputError as error:
                where = f"{error.given} of the piece that begins at {start}" if start else error.given
                argument = str(path / array_file(name))
                raise DataError(argument=argument, given=where, expected=error.expected) from None
            report(done + array.nbytes * min(start + step, len(array)) // max(len(array), 1))
        done += array.nbytes
        report(done)


def _check_of(name: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> _Check | None:
    """Return the check of an array's pieces: called with a piece and where it begins."""
    n = int(meta["num_nodes"])
    if name in ("indptr", "names_ptr", "vertex_indptr"):
        end = int(meta["num_edges"]) if name != "names_ptr" else len(arrays["names_data"])
        return lambda piece, start: _check_starts(name, arrays[name], piece, start, end)
    if name == "indices":
        return lambda piece, start: _check_columns(arrays, piece, start, n)
    if name in ("row_of_vertex", "vertex_of_row"):
        inverse = arrays["vertex_of_row" if name == "row_of_vertex" else "row_of_vertex"]
        return lambda piece, start: _check_inverse(name, piece, start, inverse)
    if name == "data":
        return lambda piece, start: check_weights(name, piece)
    if name == "original_ids":
        return lambda piece, start: check_not_negative(name, piece)
    if name == "edge_ids":
        rows = min((len(arrays[key]) for key in meta.get("edge_features", [])), default=2**63 - 1)
        return lambda piece, start: check_range(name, piece, rows, "edge ids, which lead to rows of the edge features,")
    if name in ("train_idx", "val_idx", "test_idx"):
        return lambda piece, start: check_range(name, piece, n, "vertex ids")
    if arrays[name].dtype.kind == "f":
        return lambda piece, start: _check_finite(name, piece)
    return None


def _check_starts(name: str, array: NDArray[Any], piece: NDArray[Any], start: int, end: int) -> None:
    """Check row starts: from 0 to `end`, never falling, also from one piece to the next."""
    before = int(array[start - 1]) if start else 0
    falls = np.flatnonzero(np.diff(piece, prepend=before) < 0)
    if len(falls):
        given = f"{piece[falls[0]]} at position {int(falls[0])}, less than the one before"
        raise InputError(argument=name, given=given, expected="row starts that never fall")
    last = start + len(piece) == len(array)
    if (start == 0 and int(piece[0]) != 0) or (last and int(piece[-1]) != end):
        given = f"rows from {array[0]} to {array[-1]}"
        raise InputError(argument=name, given=given, expected=f"rows from 0 to {end}")


def _check_inverse(name: str, piece: NDArray[Any], start: int, inverse: NDArray[Any]) -> None:
    """Check that a piece of a permutation, which begins at `start`, is undone by its inverse."""
    check_range(name, piece, len(inverse), "rows and vertices")
    wrong = np.flatnonzero(inverse[piece] != np.arange(start, start + len(piece)))
    if len(wrong):
        given = f"{piece[wrong[0]]} at position {int(wrong[0])}, from which the other map does not lead back"
        raise InputError(argument=name, given=given, expected="row_of_vertex and vertex_of_row that undo each other")


def _check_finite(name: str, piece: NDArray[Any]) -> None:
    """Check that features hold no NaN and no infinity."""
    finite = np.isfinite(piece)
    if not finite.all():
        raise InputError(argument=name, given=first_bad(~finite, piece), expected="finite numbers")


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
