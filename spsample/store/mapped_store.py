"""`MappedStore`: the files of a store on disk, opened by memory maps; `VertexIds`: its names of vertices."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_path, require_type, short
from spsample.common.lazily import lazily
from spsample.errors import DataError, InputError
from spsample.sparse.probability import Weighting
from spsample.store import layout
from spsample.store.construction import ARRAYS, GraphArrays, StoreOrigin
from spsample.store.folder import file_error, is_partial, system_errors
from spsample.store.layout import ArraySpec
from spsample.store.npy import FileIdentity, check_file, file_identity, locate, open_map
from spsample.store.row_order import ReorderedArrays, RowOrder
from spsample.store.validation import as_id_vector, as_vertex_ids
from spsample.store.verification import record_path, recorded_sha256, require_recorded

_MAX_TRIES = 10

T = TypeVar("T")
Store = TypeVar("Store", bound="MappedStore")


class MappedStore:
    """A folder with ``meta.json`` and ``.npy`` files, which are mapped, not read."""

    def __init__(self, path: Path, meta: dict[str, Any], specs: dict[str, ArraySpec]) -> None:
        self.path = path
        self._meta = meta
        self._specs = specs
        self._files: dict[str, FileIdentity] = {}

    @classmethod
    def read(cls: type[Store], path: str | os.PathLike[str], take: Callable[[Store], T]) -> T:
        """Open the store at `path` and return what `take` makes of it: all of one store.

        Where another one takes its place meanwhile, that one is opened, and `take` called once more.

        Raises
        ------
        DataError
            As `open` and `take`.

        Examples
        --------
        >>> import tempfile
        >>> from spsample.store import Graph, GraphStore
        >>> folder = tempfile.TemporaryDirectory()
        >>> Graph([0, 1, 2], [1, 0]).save(f"{folder.name}/pair")
        >>> GraphStore.read(f"{folder.name}/pair", lambda store: [store.array(name).tolist() for name in store.names])
        [[0, 1, 2], [1, 0]]
        >>> folder.cleanup()
        """
        folder = Path(os.path.abspath(require_path("path", path)))
        for _ in range(_MAX_TRIES):
            before = _identity(folder / layout.META_FILE)
            try:
                taken = take(cls._opened(folder))
            except DataError:
                if _identity(folder / layout.META_FILE) == before:
                    raise
                continue  # a new store took its place meanwhile
            if _identity(folder / layout.META_FILE) == before:
                return taken
        raise file_error(folder, "a store that is replaced all the time", "one that stays")

    @classmethod
    def _opened(cls: type[Store], folder: Path) -> Store:
        meta_path = folder / layout.META_FILE
        meta, specs = layout.parse_meta(str(meta_path), read_meta(folder, meta_path))
        layout.check_layout(str(meta_path), meta, specs)
        store = cls(folder, meta, specs)
        for name, spec in specs.items():
            store._files[name] = check_file(folder / layout.array_file(name), spec)
        layout.check_ends(folder / layout.array_file("indptr"), store.array("indptr"), meta["num_edges"])
        return store

    @property
    def name(self) -> str:
        """Name of its folder."""
        return os.path.basename(os.path.abspath(self.path))

    @property
    def meta(self) -> dict[str, Any]:
        """The facts of ``meta.json``, the table of arrays included; a copy."""
        return copy.deepcopy(self._meta)

    @property
    def weighting(self) -> Weighting:
        """Kind of values of the graph, as ``meta.json`` states it."""
        return cast("Weighting", self._meta["weighting"])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays."""
        return tuple(self._specs)

    @property
    def specs(self) -> dict[str, ArraySpec]:
        """Dtype, shape and checksums of each array."""
        return dict(self._specs)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(spec.nbytes for spec in self._specs.values())

    @property
    def digest(self) -> str:
        """A SHA-256 that identifies the graph: of the checksums of indptr, indices, data and edge_ids.

        Where rows were moved, that of the graph before: minibatches are the same.
        """
        if self.is_reordered:
            return str(self._meta["reordered"]["digest"])
        parts = {
            name: [spec.dtype.str, spec.shape, spec.sha256] for name, spec in self._specs.items() if name in ARRAYS
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def is_reordered(self) -> bool:
        """True where rows lie in another order than that of the vertices."""
        return layout.MAP_ARRAYS[0] in self._specs

    def row_of_vertex(self) -> NDArray[Any] | None:
        """Return where the row of each vertex lies in ``indptr``, ``x`` and ``node_features``, as `array` has them.

        Returns
        -------
        int32 or int64 array (n,), or None
            A memory map; None where row v is that of vertex v.
        """
        return self.array(layout.MAP_ARRAYS[0]) if self.is_reordered else None

    def row_order(self) -> RowOrder | None:
        """Return how rows lie, over maps; None where row v is that of vertex v."""
        if not self.is_reordered:
            return None
        return RowOrder(*(self.array(name) for name in (*layout.MAP_ARRAYS, "indptr")))

    def graph_arrays(self) -> GraphArrays:
        """Return the arrays of the graph over maps: nothing is read, copied or checked."""
        arrays = {name: self.array(name) for name in ARRAYS if name in self}
        entries = arrays["indices"], arrays.get("data"), arrays.get("edge_ids")
        origin, order = StoreOrigin(str(self.path), self.digest), self.row_order()
        if order is not None:
            return ReorderedArrays(order, *entries, self.weighting, origin)
        return GraphArrays(arrays["indptr"], *entries, self.weighting, origin)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def array(self, name: str, rows: tuple[int, int] | None = None) -> NDArray[Any]:
        """Return an array as a read-only memory map.

        With `rows` only the rows from `rows[0]` to `rows[1] - 1` are mapped and returned.

        Raises
        ------
        InputError
            If the store has no array of that name, or not these rows.
        DataError
            If its file is not the one that was there when the store was opened.
        """
        require_type("name", name, str, "the name of an array")
        if name not in self._specs:
            raise InputError(argument="name", given=repr(name), expected="one of " + ", ".join(self._specs))
        spec = self._specs[name]
        if rows is not None and not 0 <= rows[0] <= rows[1] <= spec.shape[0]:
            raise InputError(argument="rows", given=str(rows), expected=f"rows within 0 and {spec.shape[0]}")
        return open_map(self.path / layout.array_file(name), spec, self._files.get(name), rows)

    def place(self, name: str) -> tuple[Path, int]:
        """Return the file of an array that the store has, and at which byte the array begins; C order, no gaps.

        Raises
        ------
        DataError
            As `array`.
        """
        path = self.path / layout.array_file(name)
        return path, locate(path, self._specs[name], self._files.get(name))


class VertexIds:
    r"""The names that vertices have in the input: strings, or integers; a store without names has 0 to n - 1.

    `GraphStore.vertices` makes one. Names are read from the files as they are asked for; the first call of `ids` reads
    all of them, and keeps an index in memory.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from spsample.convert import ConvertOptions, convert
    >>> from spsample.store import GraphStore
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = Path(f"{folder.name}/edges.csv").write_text("src,dst\nbob,ann\ncid,bob\n")
    >>> options = ConvertOptions(string_ids=True, columns=("src", "dst"))
    >>> _ = convert(f"{folder.name}/edges.csv", f"{folder.name}/store", options)
    >>> vertices = GraphStore.open(f"{folder.name}/store").vertices
    >>> vertices.names([2, 0])
    array(['cid', 'bob'], dtype=object)
    >>> vertices.ids(["ann", "cid"])
    array([1, 2])
    >>> folder.cleanup()
    """

    def __init__(self, store: MappedStore) -> None:
        self._store = store
        self._num_nodes = len(store.array("indptr")) - 1

    def names(self, ids: Any) -> NDArray[Any]:
        """Return the name of each of some vertices.

        Parameters
        ----------
        ids : int array (k,)
            Vertices, in any order, repeated or not.

        Returns
        -------
        array (k,)
            Of strings (dtype object) where vertices were named by ``--string-ids``, else int64.

        Raises
        ------
        InputError, DTypeError
            If an id is not in [0, n).
        """
        vertices = as_vertex_ids("ids", ids, self._num_nodes).astype(np.int64)
        if "original_ids" in self._store:
            return np.asarray(self._store.array("original_ids"))[vertices]
        return self._strings(vertices) if "names_ptr" in self._store else vertices

    def ids(self, names: Any) -> NDArray[np.int64]:
        """Return the vertex of each of some names; arguments and results as of `names`, the other way round.

        Raises
        ------
        InputError, DTypeError
            If no vertex has such a name; the first one is named.
        """
        words = self._as_words(names) if "names_ptr" in self._store else as_id_vector("names", names).astype(np.int64)
        vertices = self._places(words)
        unknown = (vertices < 0) | (vertices >= self._num_nodes)
        if unknown.any():
            at = int(np.argmax(unknown))
            name = words[at].item() if isinstance(words, np.ndarray) else words[at]
            given = f"{short(name)} at position {at}"
            raise InputError(argument="names", given=given, expected=f"names of vertices of {self._store.path}")
        return vertices

    def _strings(self, vertices: NDArray[np.int64]) -> NDArray[Any]:
        starts, data = self._store.array("names_ptr"), self._store.array("names_data")
        bounds = zip(starts[vertices].tolist(), starts[vertices + 1].tolist(), strict=True)
        names = np.empty(len(vertices), object)
        names[:] = [bytes(data[begin:end]).decode("utf-8", "surrogateescape") for begin, end in bounds]
        return names

    def _as_words(self, names: Any) -> list[str]:
        values = names.tolist() if isinstance(names, np.ndarray) else names
        words = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
        if isinstance(values, str) or not all(isinstance(word, str) for word in words):
            raise InputError(argument="names", given=short(names), expected="a sequence of strings")
        return words

    def _places(self, names: Any) -> NDArray[np.int64]:
        """The vertex of each name; one out of range for an unknown name."""
        if "names_ptr" in self._store:
            return np.array([self._numbers.get(name, -1) for name in names], np.int64)
        if "original_ids" not in self._store:
            return cast("NDArray[np.int64]", names)
        order, ascending = self._ascending
        places = np.minimum(np.searchsorted(ascending, names), self._num_nodes - 1)
        return np.where(ascending[places] == names, order[places], -1)

    @lazily
    def _numbers(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._strings(np.arange(self._num_nodes)))}

    @lazily
    def _ascending(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ids = self._store.array("original_ids")
        order = np.argsort(ids, kind="stable")
        return order, np.asarray(ids)[order]

    def __repr__(self) -> str:
        return f"VertexIds(num_nodes={self._num_nodes})"


def _identity(path: Path) -> FileIdentity | None:
    with suppress(OSError):
        return file_identity(path.stat())
    return None


def read_meta(folder: Path, path: Path) -> bytes:
    """Return the bytes of ``meta.json``, compared with its checksum; it is not parsed."""
    with system_errors(folder, "the folder of a store, with meta.json in it"):
        if not folder.is_dir():
            what = "a file" if folder.exists() else "nothing there"
            raise file_error(folder, what, "the folder of a store, with meta.json in it")
    if is_partial(folder):
        raise file_error(folder, "the hidden folder of a store that is being written, or was left behind", "a store")
    with system_errors(path, "a store that can be read"):
        if not path.is_file():
            hint = "A conversion that was interrupted leaves no store: run it again."
            raise file_error(folder, "a folder without meta.json", "a store", hint)
        if path.stat().st_size > layout.MAX_META:
            raise file_error(path, f"{path.stat().st_size} bytes", "at most 64 MiB")
        content = path.read_bytes()
        recorded = recorded_sha256(path)
        if recorded is not None:
            hint = (
                "The store is damaged: copy or convert it again. If meta.json was changed on purpose, "
                f"run: sha256sum {layout.META_FILE} > {record_path(path).name}"
            )
            require_recorded(path, hashlib.sha256(content).hexdigest(), recorded, hint)
    return content
