"""The form of a store: a folder with ``meta.json`` and one ``.npy`` file per array.

``meta.json`` is a JSON object::

    {"format": "spsample graph", "version": 1,
     "num_nodes": n, "num_edges": m, "weighting": "unweighted" | "row" | "weighted",
     "arrays": {name: {"file": "name.npy", "dtype": "<i8", "shape": [n + 1], "sha256": [one per 64 MiB]}},
     ...facts about the graph}

A store whose rows were moved has the version 2, the arrays ``row_of_vertex``, ``vertex_of_row`` and ``vertex_indptr``
and the fact ``reordered``: ``{"score": what chose the order, "digest": that of the graph}``. Its ``indptr`` and arrays
of entries, ``x`` and ``node_features`` are in the order of rows; all else is by vertex, and ``indices`` hold vertices.

The checksums are of the bytes of the array, without the header of its file, in pieces of 64 MiB. ``meta.json.sha256``
has that of ``meta.json`` itself; a store of before there was one opens without.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.store.folder import file_error
from spsample.store.validation import INT32_NODES, MAX_NODES

FORMAT = "spsample graph"
VERSION = 1
REORDERED_VERSION = 2
"""Version of stores whose rows were moved, which releases that know no such stores would read wrongly."""
META_FILE = "meta.json"
CHUNK_BYTES = 64 * 2**20
"""Bytes of an array that share a checksum; the last piece of an array may be shorter."""

_MAX_DIMENSIONS = 32
MAX_META = 64 * 2**20
ARRAY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
OWN_KEYS = ("format", "version", "arrays")
"""Keys of ``meta.json`` that are no facts about the graph."""

MAP_ARRAYS = ("row_of_vertex", "vertex_of_row", "vertex_indptr")
"""Arrays of a store whose rows were moved."""

_KINDS = "biuf"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WEIGHTINGS = ("unweighted", "row", "weighted")


class ArraySpec(NamedTuple):
    """Entry of ``meta.json`` about one array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    sha256: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the array, without the header of its file."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


def array_file(name: str) -> str:
    """Return the name of an array's file."""
    return f"{name}.npy"


def version_of(names: Iterable[str]) -> int:
    """Return the version of the form of a store with arrays of these names.

    Examples
    --------
    >>> version_of(["indptr", "indices"]), version_of(["indptr", "indices", "row_of_vertex"])
    (1, 2)
    """
    return REORDERED_VERSION if MAP_ARRAYS[0] in names else VERSION


def parse_meta(path: str, content: bytes) -> tuple[dict[str, Any], dict[str, ArraySpec]]:
    """Return the facts of a ``meta.json`` and its arrays.

    Raises
    ------
    DataError
        If it is no JSON object of the format above, names a file other than ``NAME.npy``, or has a version that this
        release does not know.
    """
    try:
        meta = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise file_error(path, f"no JSON ({error})", "the meta.json of a store") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        form = meta.get("format") if isinstance(meta, dict) else type(meta).__name__
        raise file_error(path, f"format {form!r}", f'a JSON object with "format": "{FORMAT}"')
    arrays = meta.get("arrays")
    version, known = meta.get("version"), version_of(arrays) if isinstance(arrays, dict) else VERSION
    if type(version) is not int or version != known:
        newer = type(version) is int and version > known
        hint = "The store was written by a newer release: upgrade spsample." if newer else ""
        expected = f"version {known}, which this release of spsample reads"
        raise file_error(path, f"format version {version!r}", expected, hint)
    if not isinstance(arrays, dict):
        raise file_error(path, "no table of arrays", 'a JSON object "arrays"')
    return meta, {name: _parse_spec(path, name, entry) for name, entry in arrays.items()}


def _parse_spec(path: str, name: str, entry: Any) -> ArraySpec:
    """Check and return the entry of one array."""
    if ARRAY_NAME.fullmatch(name) is None:
        raise file_error(path, f"an array named {name!r}", "names of letters, digits and _, a letter first")
    if not isinstance(entry, dict) or entry.get("file") != array_file(name):
        file = entry.get("file") if isinstance(entry, dict) else entry
        given = f"the file {file!r} for the array {name}"
        raise file_error(path, given, f"{array_file(name)!r}, in the folder of the store")
    shape, sums = entry.get("shape"), entry.get("sha256")
    if not isinstance(shape, list) or not shape or not all(type(size) is int and 0 <= size < 2**63 for size in shape):
        raise file_error(path, f"shape {shape!r} of {name}", "one or more integers of at least 0")
    if not isinstance(sums, list) or not all(isinstance(word, str) and _SHA256.fullmatch(word) for word in sums):
        raise file_error(path, f"sha256 of {name} of another form", "a list of SHA-256 sums")
    spec = ArraySpec(_parse_dtype(path, name, entry.get("dtype")), tuple(shape), tuple(sums))
    if len(shape) > _MAX_DIMENSIONS or math.prod(max(size, 1) for size in shape) * spec.dtype.itemsize >= 2**63:
        expected = f"at most {_MAX_DIMENSIONS} dimensions, and less than 2^63 bytes even with empty ones taken as 1"
        raise file_error(path, f"shape {shape!r} of {name}", expected)
    chunks = -(-spec.nbytes // CHUNK_BYTES)
    if len(sums) != chunks:
        given = f"{len(sums)} checksums for {name} of {spec.nbytes} bytes"
        raise file_error(path, given, f"{chunks}, one per 64 MiB")
    return spec


def _parse_dtype(path: str, name: str, text: Any) -> np.dtype[Any]:
    """Return the dtype of an array, of this machine's byte order."""
    try:
        dtype = np.dtype(text) if isinstance(text, str) else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind not in _KINDS or dtype.str != text:
        raise file_error(path, f"dtype {text!r} of {name}", "bools, integers or floats, such as '<i8' or '<f4'")
    if not dtype.isnative:
        raise file_error(
            path,
            f"dtype {text!r} of {name}, which is of another machine's byte order",
            f"{dtype.newbyteorder('=').str!r}",
            "Convert the graph again on a machine of this byte order: maps cannot swap bytes.",
        )
    return dtype


def check_layout(path: str, meta: dict[str, Any], specs: dict[str, ArraySpec]) -> None:
    """Check that the arrays of a store fit each other, by their dtypes and shapes alone.

    Raises
    ------
    DataError
        Naming the array that does not fit.
    """
    for name in ("indptr", "indices"):
        if name not in specs:
            raise file_error(path, f"no array {name}", "the arrays indptr and indices")
    n, m = _size(path, meta, "num_nodes", 1, MAX_NODES), _size(path, meta, "num_edges", 0, 2**63 - 1)
    weighting = meta.get("weighting")
    if weighting not in _WEIGHTINGS or (weighting == "weighted") != ("data" in specs):
        given = f"weighting {weighting!r} and {'an' if 'data' in specs else 'no'} array data"
        raise file_error(path, given, "'weighted' with data, 'unweighted' or 'row' without")
    ids = (np.int64, np.int32) if n <= INT32_NODES else (np.int64,)
    integers, floats = (np.int64, np.int32), (np.float16, np.float32, np.float64)
    _check_array(path, specs, "indptr", (np.int64,), (n + 1,))
    _check_array(path, specs, "indices", ids, (m,))
    _check_array(path, specs, "data", floats[1:], (m,))
    _check_array(path, specs, "edge_ids", (np.int64,), (m,))
    _check_array(path, specs, "original_ids", (np.int64,), (n,))
    _check_array(path, specs, "names_ptr", (np.int64,), (n + 1,))
    _check_array(path, specs, "names_data", (np.uint8,), (None,))
    _check_map(path, meta, specs, n)
    for part in ("train", "val", "test"):
        _check_array(path, specs, f"{part}_idx", integers, (None,))
        _check_array(path, specs, f"{part}_masks", (np.bool_,), (None, n))
    _check_rows(path, specs, "y", n)
    _check_rows(path, specs, "x", n)
    if ("names_ptr" in specs) != ("names_data" in specs):
        raise file_error(path, "one of names_ptr and names_data", "both or neither")
    for name in _feature_names(path, meta, specs, "node_features"):
        _check_rows(path, specs, name, n)
    for name in _feature_names(path, meta, specs, "edge_features"):
        _check_rows(path, specs, name, None)


def _check_map(path: str, meta: dict[str, Any], specs: dict[str, ArraySpec], n: int) -> None:
    """Check the arrays and the fact of a store whose rows were moved, if it is one."""
    names = [name for name in MAP_ARRAYS if name in specs]
    if not names:
        return
    if len(names) < len(MAP_ARRAYS):
        raise file_error(path, f"only {', '.join(names)}", f"all of {', '.join(MAP_ARRAYS)}")
    ids = specs["indices"].dtype
    _check_array(path, specs, "row_of_vertex", (ids,), (n,))
    _check_array(path, specs, "vertex_of_row", (ids,), (n,))
    _check_array(path, specs, "vertex_indptr", (np.int64,), (n + 1,))
    fact = meta.get("reordered")
    digest = fact.get("digest") if isinstance(fact, dict) else None
    if not isinstance(digest, str) or _SHA256.fullmatch(digest) is None:
        expected = "a JSON object with the digest of the graph, as the store has row_of_vertex"
        raise file_error(path, f"reordered {fact!r}", expected)


def check_ends(path: str | Path, starts: NDArray[np.int64], num_edges: int) -> None:
    """Check the first and the last row start: the only contents that are read on opening."""
    if int(starts[0]) != 0 or int(starts[-1]) != num_edges:
        given = f"rows from {starts[0]} to {starts[-1]}"
        raise file_error(path, given, f"from 0 to the number of edges, {num_edges}")


def _size(path: str, meta: dict[str, Any], key: str, least: int, most: int) -> int:
    value = meta.get(key)
    if type(value) is not int or not least <= value <= most:
        raise file_error(path, f"{key} {value!r}", f"an integer in [{least}, {most}]")
    return value


def _check_array(
    path: str, specs: dict[str, ArraySpec], name: str, dtypes: tuple[Any, ...], shape: tuple[int | None, ...]
) -> None:
    """Check dtype and shape of an array, if it is there; None in `shape` is any length."""
    if name not in specs:
        return
    spec = specs[name]
    fits = len(spec.shape) == len(shape) and all(
        want is None or want == size for want, size in zip(shape, spec.shape, strict=True)
    )
    if spec.dtype in dtypes and fits:
        return
    kinds = " or ".join(np.dtype(dtype).name for dtype in dtypes)
    wanted = ", ".join("any" if size is None else str(size) for size in shape)
    given = f"{name} of dtype {spec.dtype} and shape {spec.shape}"
    raise file_error(path, given, f"{name} of {kinds} and shape ({wanted})")


def _check_rows(path: str, specs: dict[str, ArraySpec], name: str, rows: int | None) -> None:
    """Check that an array, if it is there, has one or two dimensions, and the number of rows."""
    if name not in specs:
        return
    shape = specs[name].shape
    if len(shape) not in (1, 2) or (rows is not None and shape[0] != rows):
        wanted = "any number of" if rows is None else str(rows)
        raise file_error(path, f"{name} of shape {shape}", f"{name} of {wanted} rows and one or two dimensions")


def _feature_names(path: str, meta: dict[str, Any], specs: dict[str, ArraySpec], key: str) -> list[str]:
    names = meta.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name in specs for name in names):
        raise file_error(path, f"{key} {names!r}", "a list of names of arrays of the store")
    return names
