"""`StoreWriter`: a store appears on the disk whole, with its checksums, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_int, require_path, require_type, short
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.store import layout
from spsample.store.base_graph import require_local
from spsample.store.construction import ARRAYS
from spsample.store.folder import PartialFolder, file_error, sync_file, system_errors
from spsample.store.npy import create_map, release_pages, shorten_map
from spsample.store.verification import checksums, record, record_path

_MAX_BYTES = 2**62
_WRITABLE = "a folder that can be written to"


class StoreWriter:
    """Write a graph store: a context manager that makes the folder `path` when its block ends without an exception.

    Arrays are written in a hidden folder ``.NAME.partial-XXXX`` beside `path`. At the end of the block their checksums
    are computed, ``meta.json`` is written, all is flushed to the disk, and one rename makes it `path`. An exception
    removes the hidden folder; one that a killed process left is no store, and the next writer to `path` removes it.

    Parameters
    ----------
    path : path-like
        The folder to make; links are followed, missing parent folders are made. It must not exist, unless it is an
        empty folder or a store and `overwrite` is set.
    overwrite : bool, optional
        Replace the store at `path`. It stays as it is until the new one is complete; processes that have it open keep
        reading the old one.

    Raises
    ------
    DataError
        If something else than that is at `path`, it cannot be written to, the disk is full, or at the end the arrays
        do not make a store. Nothing is left behind.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with StoreWriter(f"{folder.name}/pair") as writer:
    ...     writer.write("indptr", np.array([0, 1, 2]))
    ...     indices = writer.create("indices", np.int32, 2)
    ...     indices[:] = [1, 0]
    ...     writer.set(name="pair")
    >>> from spsample.store import GraphStore
    >>> GraphStore.open(f"{folder.name}/pair").graph().indices
    array([1, 0], dtype=int32)
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.path = require_path("path", path)
        require_type("overwrite", overwrite, (bool, np.bool_), "True or False")
        self._overwrite = overwrite
        self._folder: PartialFolder | None = None
        self._arrays: dict[str, NDArray[Any]] = {}
        self._sums: dict[str, list[str]] = {}
        self._facts: dict[str, Any] = {}

    def __enter__(self) -> StoreWriter:
        """Make the hidden folder."""
        with system_errors(self.path, _WRITABLE):
            _check_free(self.path, overwrite=self._overwrite)
        self._folder = PartialFolder(self.path)
        return self

    def __exit__(self, *exception: object) -> None:
        """Complete the store, or remove what there is of it."""
        folder = self._open_folder()
        self._folder = None
        try:
            if exception[0] is None:
                with system_errors(self.path, _WRITABLE):
                    self._complete(folder.path)
                    _check_free(folder.target, overwrite=self._overwrite)
                folder.publish(overwrite=self._overwrite)
                return
        except BaseException:
            folder.remove()
            raise
        finally:
            self._arrays.clear()
            self._sums.clear()
        folder.remove()

    @property
    def folder(self) -> Path:
        """The hidden folder, where a writer may also keep temporary files, which it must remove itself."""
        return self._open_folder().path

    def write_graph(self, graph: Any) -> None:
        """Write the arrays of a `spsample.Graph`, which other arrays may follow.

        Raises
        ------
        DTypeError, InputError, DataError
            If it is no graph, or as `create`.
        """
        require_local(graph)
        for name in ARRAYS:
            array = getattr(graph, name)
            if array is not None:
                self.write(name, array)
        self.set(weighting=graph.weighting)

    def create(self, name: str, dtype: Any, shape: int | tuple[int, ...]) -> NDArray[Any]:
        """Make the array `name` of zeros and return it as a writable map of its file; room on the disk is reserved.

        Parameters
        ----------
        name : str
            Letters, digits and ``_``; `spsample.store.layout` lists the names that have a meaning.
        dtype : dtype
            Of bools, integers or floats; it is stored in this machine's byte order.
        shape : int or tuple of int

        Raises
        ------
        InputError
            If there is an array of that name already, or the name cannot be one.
        DTypeError
            If the dtype is of objects, strings, dates or complex numbers.
        DataError
            If the disk is full.
        """
        folder = self._open_folder()
        require_type("name", name, str, "the name of an array")
        if layout.ARRAY_NAME.fullmatch(name) is None:
            expected = "letters, digits and _, a letter first, at most 100"
            raise InputError(argument="name", given=repr(name), expected=expected)
        if name in self._arrays:
            raise InputError(argument="name", given=repr(name), expected="a name that is not in use yet")
        try:
            kind = np.dtype(dtype).newbyteorder("=")
        except (TypeError, ValueError) as error:
            raise DTypeError(argument="dtype", given=short(dtype), expected="the dtype of an array") from error
        if kind.kind not in "biuf" or kind.itemsize > 8:
            given = f"dtype {kind} for {name}"
            raise DTypeError(argument="dtype", given=given, expected="bools, or integers or floats of up to 64 bits")
        if isinstance(shape, tuple) and not shape:
            raise InputError(argument="shape", given="()", expected="at least one dimension")
        given_shape = shape if isinstance(shape, (tuple, list)) else (shape,)
        lengths = tuple(require_int("shape", length, minimum=0) for length in given_shape)
        if prod(lengths) * kind.itemsize > _MAX_BYTES:
            raise CapacityError(argument="shape", given=f"{short(lengths)} of {kind}", expected="at most 2**62 bytes")
        with system_errors(self.path, _WRITABLE):
            self._arrays[name] = create_map(folder.path / layout.array_file(name), kind, lengths)
        return self._arrays[name]

    def write(self, name: str, array: Any) -> None:
        """Write a whole array under the name `name`; errors as `create`."""
        values = np.asarray(array)
        self.create(name, values.dtype, values.shape)[...] = values

    def use_checksums(self, name: str, sums: list[str]) -> None:
        """Take the checksums of an array from who wrote it, so that it is not read again for them.

        Parameters
        ----------
        name : str
            An array that was created.
        sums : list of str
            SHA-256 of each 64 MiB of its bytes, as `spsample.store.verification.checksums` gives them.

        Raises
        ------
        InputError
            If there is no such array.
        """
        self._made(name)
        self._sums[name] = list(sums)

    def shorten(self, name: str, length: int) -> NDArray[Any]:
        """Keep the first `length` rows of an array; return a new map, the old one must not be used any more.

        Raises
        ------
        InputError
            If there is no such array, or it has fewer rows.
        """
        array = self._made(name)
        length = require_int("length", length, minimum=0, maximum=len(array))
        self._arrays[name] = np.empty(0)  # the old map is freed
        with system_errors(self.path, _WRITABLE):
            self._arrays[name] = shorten_map(
                self._open_folder().path / layout.array_file(name), array.dtype, (length, *array.shape[1:])
            )
        return self._arrays[name]

    def discard(self, name: str) -> None:
        """Remove an array; errors as `shorten`."""
        self._made(name)
        del self._arrays[name]
        with system_errors(self.path, _WRITABLE):
            (self._open_folder().path / layout.array_file(name)).unlink()

    def _made(self, name: str) -> NDArray[Any]:
        require_type("name", name, str, "the name of an array")
        if name not in self._arrays:
            raise InputError(argument="name", given=repr(name), expected="an array that was created")
        return self._arrays[name]

    def set(self, **facts: Any) -> None:
        """Put facts into ``meta.json``: anything that JSON can hold; NumPy numbers become plain ones.

        ``num_nodes``, ``num_edges`` and ``weighting`` need not be given: they follow from the arrays.

        Raises
        ------
        InputError
            If JSON cannot hold a value, or the name is one that the format uses itself.
        """
        for name, value in facts.items():
            if name in layout.OWN_KEYS:
                raise InputError(argument=name, given=repr(value), expected="another name: the format uses this one")
            try:
                self._facts[name] = json.loads(json.dumps(value, default=_plain, allow_nan=False))
            except (TypeError, ValueError) as error:
                given = f"a {type(value).__name__} ({error})"
                raise InputError(argument=name, given=given, expected="a value that JSON can hold") from None

    def _open_folder(self) -> PartialFolder:
        if self._folder is None:
            given = "a writer outside of its with block"
            raise InputError(argument="writer", given=given, expected="with StoreWriter(path) as writer: ...")
        return self._folder

    def _complete(self, folder: Path) -> None:
        """Write the arrays to the disk, then their checksums."""
        sums = {name: self._sums.get(name, []) for name in self._arrays}
        for piece in checksums({name: array for name, array in self._arrays.items() if name not in self._sums}):
            sums[piece.name].append(piece.sha256)
            release_pages(self._arrays[piece.name])
        if "indptr" not in self._arrays or "indices" not in self._arrays:
            given = f"the arrays {', '.join(self._arrays) or '(none)'}"
            raise file_error(self.path, given, "at least indptr and indices")
        meta = {
            "format": layout.FORMAT,
            "version": layout.version_of(self._arrays),
            "num_nodes": len(self._arrays["indptr"]) - 1,
            "num_edges": len(self._arrays["indices"]),
            "weighting": "weighted" if "data" in self._arrays else "unweighted",
            **self._facts,
        }
        meta["arrays"] = {
            name: {
                "file": layout.array_file(name),
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "sha256": sums[name],
            }
            for name, array in self._arrays.items()
        }
        content = json.dumps(meta, indent=1).encode()
        layout.check_layout(str(self.path), *layout.parse_meta(str(self.path), content))
        layout.check_ends(self.path / layout.array_file("indptr"), self._arrays["indptr"], meta["num_edges"])
        for name, array in self._arrays.items():
            if isinstance(array, np.memmap):
                array.flush()
            sync_file(folder / layout.array_file(name))
        path = folder / layout.META_FILE
        path.write_bytes(content)
        record_path(path).write_bytes(record(path, hashlib.sha256(content).hexdigest()))
        for written in (path, record_path(path)):
            sync_file(written)


def _check_free(path: Path, *, overwrite: bool) -> None:
    """Check that a store may be made at `path`."""
    if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        return
    is_store = (path / layout.META_FILE).is_file()
    if is_store and overwrite:
        return
    given = "a store" if is_store else "a folder that is no store" if path.is_dir() else "a file, or a link to nothing"
    hint = "Pass overwrite=True (on the command line --overwrite) to replace it." if is_store else ""
    raise file_error(path, f"{given} there already", "a path that does not exist, or an empty folder", hint)


def _plain(value: Any) -> Any:
    """Turn what NumPy and pathlib make into what JSON holds."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
