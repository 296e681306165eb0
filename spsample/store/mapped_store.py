"""`MappedStore`: the files of a store on disk, opened by memory maps."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from spsample.common.checks import require_choice, require_path, require_type
from spsample.errors import DataError, InputError
from spsample.sparse.probability import Weighting
from spsample.store.construction import ARRAYS, GraphArrays, StoreOrigin
from spsample.store.folder import file_error, is_partial, system_errors
from spsample.store.layout import MAP_ARRAYS, MAX_META, META_FILE, ArraySpec, array_file, check_layout, parse_meta
from spsample.store.npy import ACCESS, FileIdentity, check_file, locate, open_map
from spsample.store.row_order import ReorderedArrays, RowOrder
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
            before = _identity(folder / META_FILE)
            try:
                taken = take(cls._opened(folder))
            except DataError:
                if _identity(folder / META_FILE) == before:
                    raise
                continue  # a new store took its place meanwhile
            if _identity(folder / META_FILE) == before:
                return taken
        raise file_error(folder, "a store that is replaced all the time", "one that stays")

    @classmethod
    def _opened(cls: type[Store], folder: Path) -> Store:
        meta_path = folder / META_FILE
        meta, specs = parse_meta(str(meta_path), read_meta(folder, meta_path))
        check_layout(str(meta_path), meta, specs)
        store = cls(folder, meta, specs)
        for name, spec in specs.items():
            store._files[name] = check_file(folder / array_file(name), spec)
        store._check_ends()
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
        weighting: Weighting = self._meta["weighting"]
        return weighting

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
            digest: str = self._meta["reordered"]["digest"]
            return digest
        parts = {
            name: [spec.dtype.str, spec.shape, spec.sha256] for name, spec in self._specs.items() if name in ARRAYS
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def is_reordered(self) -> bool:
        """True where rows lie in another order than that of the vertices."""
        return MAP_ARRAYS[0] in self._specs

    def row_of_vertex(self) -> NDArray[Any] | None:
        """Return where the row of each vertex lies in ``indptr``, ``x`` and ``node_features``, as `array` has them.

        Returns
        -------
        int32 or int64 array (n,), or None
            A memory map; None where row v is that of vertex v.
        """
        return self.array(MAP_ARRAYS[0]) if self.is_reordered else None

    def row_order(self, access: str = "normal") -> RowOrder | None:
        """Return how rows lie, over maps; None where row v is that of vertex v. `access` as in `Graph.open`."""
        if not self.is_reordered:
            return None
        return RowOrder(*(self.array(name, access) for name in (*MAP_ARRAYS, "indptr")))

    def graph_arrays(self, access: str = "normal") -> GraphArrays:
        """Return the arrays of the graph over maps: nothing is read, copied or checked; `access` as in `Graph.open`."""
        arrays = {name: self.array(name, access) for name in ARRAYS if name in self}
        entries = arrays["indices"], arrays.get("data"), arrays.get("edge_ids")
        origin, order = StoreOrigin(str(self.path), self.digest, access), self.row_order(access)
        if order is not None:
            return ReorderedArrays(order, *entries, self.weighting, origin)
        return GraphArrays(arrays["indptr"], *entries, self.weighting, origin)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def array(self, name: str, access: str = "normal", rows: tuple[int, int] | None = None) -> NDArray[Any]:
        """Return an array as a read-only memory map; `access` as in `Graph.open`.

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
        require_choice("access", access, ACCESS)
        spec = self._specs[name]
        if rows is not None and not 0 <= rows[0] <= rows[1] <= spec.shape[0]:
            raise InputError(argument="rows", given=str(rows), expected=f"rows within 0 and {spec.shape[0]}")
        return open_map(self.path / array_file(name), spec, access, self._files.get(name), rows)

    def place(self, name: str) -> tuple[Path, int]:
        """Return the file of an array that the store has, and at which byte the array begins; C order, no gaps.

        Raises
        ------
        DataError
            As `array`.
        """
        path = self.path / array_file(name)
        return path, locate(path, self._specs[name], self._files.get(name))

    def _check_ends(self) -> None:
        """Check the first and the last row start: the only contents that are read on opening."""
        starts, edges = self.array("indptr"), self._meta["num_edges"]
        if int(starts[0]) != 0 or int(starts[-1]) != edges:
            given = f"rows from {starts[0]} to {starts[-1]}"
            argument = str(self.path / array_file("indptr"))
            raise file_error(argument, given, f"from 0 to the number of edges, {edges}")


def _identity(path: Path) -> FileIdentity | None:
    try:
        return FileIdentity.of(path.stat())
    except OSError:
        return None


def read_meta(folder: Path, path: Path) -> str:
    """Return the text of ``meta.json``, compared with its checksum; it is not parsed."""
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
        if path.stat().st_size > MAX_META:
            raise file_error(path, f"{path.stat().st_size} bytes", "at most 64 MiB")
        content = path.read_bytes()
        recorded = recorded_sha256(path)
        if recorded is not None:
            hint = (
                "The store is damaged: copy or convert it again. If meta.json was changed on purpose, "
                f"run: sha256sum {META_FILE} > {record_path(path).name}"
            )
            require_recorded(path, hashlib.sha256(content).hexdigest(), recorded, hint)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise file_error(path, f"no UTF-8 ({error})", "the meta.json of a store") from None
