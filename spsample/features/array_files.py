"""`ArrayFile`: the place of an array's rows in its file, that of a store or an ``.npy`` file by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_path
from spsample.errors import DataError, InputError
from spsample.store import GraphStore
from spsample.store.npy import npy_header
from spsample.store.row_order import ReorderedRows


class ArrayFile(NamedTuple):
    """Rows of numbers in a file, one after the other.

    Attributes
    ----------
    path : str
    begin : int
        The byte at which the first row begins.
    dtype : numpy.dtype
    shape : (int, int)
        Numbers of rows, and of numbers in a row.
    written : (int, int)
        Bytes of the file, and when it was last written, in nanoseconds.
    row_of_vertex : int array (rows,), optional
        The row of each vertex, in a store whose rows were moved; None: row v is that of vertex v.
    """

    path: str
    begin: int
    dtype: np.dtype[Any]
    shape: tuple[int, int]
    written: tuple[int, int]
    row_of_vertex: NDArray[Any] | None = None


def array_file_of(path: str | os.PathLike[str], name: str = "x") -> ArrayFile:
    """Return the file of a dense array: array `name` of the store in the folder `path`, or the ``.npy`` file `path`.

    Only headers are read. An array of one dimension has rows of one number.

    Raises
    ------
    InputError
        If the store has no features of that name, or they are sparse; or the array is not of real numbers in one or
        two dimensions, or has no rows or no columns.
    DataError
        If there is no such file, or it is damaged.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/x.npy", np.ones((3, 2), np.float16))
    >>> file = array_file_of(f"{folder.name}/x.npy")
    >>> file.begin, file.dtype, file.shape
    (128, dtype('float16'), (3, 2))
    >>> folder.cleanup()
    """
    file = Path(os.path.abspath(require_path("path", path)))
    return _of_npy(file) if file.suffix == ".npy" and not file.is_dir() else _of_store(file, name)


def _of_store(path: Path, name: str) -> ArrayFile:
    """The features of a store."""

    def take(store: GraphStore) -> ArrayFile:
        if name in store.feature_names and name not in store:
            expected = "dense features, or FeatureStore.open(path), which maps sparse ones"
            raise InputError(argument="name", given=f"{name!r}, whose rows are sparse", expected=expected)
        rows = store.features(name)
        file, begin = store.place(name)
        made = _checked(file, begin, rows.dtype, rows.shape)
        return made._replace(row_of_vertex=_map_of(path, rows)) if isinstance(rows, ReorderedRows) else made

    return GraphStore.read(path, take)


def _map_of(path: Path, moved: ReorderedRows) -> NDArray[Any]:
    """Return the row of each vertex, in memory."""
    rows = np.array(moved.rows)
    if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= len(moved.stored)):
        given, expected = f"rows from {rows.min()} to {rows.max()}", f"rows below {len(moved.stored)}"
        hint = "The store is damaged: copy it, or reorder it again."
        raise DataError(argument=str(path), given=f"a map to {given}", expected=expected, hint=hint)
    return rows


def _of_npy(path: Path) -> ArrayFile:
    """The array of an ``.npy`` file."""
    header = npy_header(path)
    if header.is_fortran and len(header.shape) > 1:
        raise InputError(argument="path", given="an array in Fortran order", expected="rows that lie one by one")
    return _checked(path, header.begin, header.dtype, header.shape)


def _checked(path: Path, begin: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ArrayFile:
    if dtype.kind not in "fiub" or dtype.itemsize > 8 or not dtype.isnative:
        expected = "real numbers of at most 8 bytes, in the byte order of this machine"
        raise InputError(argument="path", given=f"numbers of {dtype.str}", expected=expected)
    if len(shape) not in (1, 2) or 0 in shape:
        raise InputError(argument="path", given=f"shape {shape}", expected="rows of at least one number")
    status = path.stat()
    rows = (shape[0], shape[1] if len(shape) == 2 else 1)
    return ArrayFile(str(path), begin, dtype, rows, (status.st_size, status.st_mtime_ns))
