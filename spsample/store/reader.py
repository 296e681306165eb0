"""`GraphStore`: a store on disk, opened by memory maps."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray
from scipy import sparse

from spsample.common.checks import require_choice, require_path, require_type
from spsample.errors import DataError, InputError
from spsample.store.folder import is_partial, system_errors
from spsample.store.graph import Graph, StoreOrigin
from spsample.store.layout import LARGEST_META, META_FILE, ArraySpec, array_file, check_layout, parse_meta
from spsample.store.mapping import ACCESS, FileIdentity, check_file, open_map
from spsample.store.recorded import record_path, recorded_sha256, require_recorded
from spsample.store.verification import verify_checksums, verify_structure

__all__ = ["GraphStore"]

_GRAPH_ARRAYS = ("indptr", "indices", "data", "edge_ids")
_MOST_TRIES = 10

T = TypeVar("T")


class GraphStore:
    """A graph store: a folder with ``meta.json`` and ``.npy`` files, which are mapped, not read.

    `GraphStore.open` makes one. Opening reads ``meta.json`` and the headers of the files: names, dtypes, shapes and
    sizes are checked, contents are not, so that it takes the same time whatever the size of the graph. `verify` reads
    everything; use it on stores that others made, or that were copied: what is sampled from damaged contents is
    undefined. ``meta.json`` is compared with its checksum on opening already.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> Graph([0, 1, 2], [1, 0]).save(f"{folder.name}/pair")
    >>> store = GraphStore.open(f"{folder.name}/pair")
    >>> store.names, store.meta["num_edges"]
    (('indptr', 'indices'), 2)
    >>> store.verify()
    ()
    >>> store.graph()
    Graph(num_nodes=2, num_edges=2, weighting='unweighted', indices=int64)
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, meta: dict[str, Any], specs: dict[str, ArraySpec]) -> None:
        self.path = path
        self._meta = meta
        self._specs = specs
        self._files: dict[str, FileIdentity] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GraphStore:
        """Open the store at `path`.

        Raises
        ------
        DataError
            If there is none, it was written by a newer release, ``meta.json`` is damaged, or a file is missing,
            truncated, exchanged for another one or not readable. The message names the file.
        """
        return cls.read(path, lambda store: store)

    @classmethod
    def read(cls, path: str | os.PathLike[str], take: Callable[[GraphStore], T]) -> T:
        """Open the store at `path` and return what `take` makes of it: all of one store.

        Where another one takes its place meanwhile, that one is opened, and `take` called once more.

        Raises
        ------
        DataError
            As `open` and `take`.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> Graph([0, 1, 2], [1, 0]).save(f"{folder.name}/pair")
        >>> GraphStore.read(f"{folder.name}/pair", lambda store: [store.array(name).tolist() for name in store.names])
        [[0, 1, 2], [1, 0]]
        >>> folder.cleanup()
        """
        folder = Path(os.path.abspath(require_path("path", path)))
        for _ in range(_MOST_TRIES):
            before = _identity(folder / META_FILE)
            try:
                taken = take(cls._opened(folder))
            except DataError:
                if _identity(folder / META_FILE) == before:
                    raise
                continue  # a new store took its place meanwhile
            if _identity(folder / META_FILE) == before:
                return taken
        raise DataError(argument=str(folder), given="a store that is replaced all the time", expected="one that stays")

    @classmethod
    def _opened(cls, folder: Path) -> GraphStore:
        meta_path = folder / META_FILE
        meta, specs = parse_meta(str(meta_path), _read_meta(folder, meta_path))
        check_layout(str(meta_path), meta, specs)
        store = cls(folder, meta, specs)
        for name, spec in specs.items():
            store._files[name] = check_file(folder / array_file(name), spec)
        store._check_ends()
        return store

    @property
    def meta(self) -> dict[str, Any]:
        """The facts of ``meta.json``, the table of arrays included; a copy."""
        return copy.deepcopy(self._meta)

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
        """A SHA-256 that tells graphs apart: of the checksums of indptr, indices, data and edge_ids."""
        parts = {
            name: [spec.dtype.str, spec.shape, spec.sha256]
            for name, spec in self._specs.items()
            if name in _GRAPH_ARRAYS
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

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

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names that `features` takes: ``"x"``, and those that ``meta.json`` lists."""
        own = ["x"] if "x" in self or "x_data" in self else []
        listed = [*self._meta.get("node_features", []), *self._meta.get("edge_features", [])]
        return tuple(dict.fromkeys(own + listed))

    def features(self, name: str = "x") -> Any:
        """Return a feature array of two dimensions as a read-only map; ``"x"`` may also be a SciPy CSR matrix.

        Raises
        ------
        InputError
            If the store has no features of that name.
        DataError
            As `array`, and if a sparse matrix is broken.
        """
        require_type("name", name, str, "the name of an array")
        if name not in self.feature_names:
            have = ", ".join(map(repr, self.feature_names))
            expected = f"one of {have}" if have else "a store with features, which this one has not"
            raise InputError(argument="name", given=repr(name), expected=expected)
        if name not in self._specs:
            return self._sparse_features()
        array = self.array(name)
        return array[:, None] if array.ndim == 1 else array

    def _sparse_features(self) -> sparse.csr_array:
        try:
            data, indices, indptr = (self.array(f"x_{part}") for part in ("data", "indices", "indptr"))
            matrix = sparse.csr_array((data, indices, indptr), shape=tuple(self._meta["x_shape"]))
            matrix.check_format(full_check=True)
            if matrix.shape[0] != self._meta["num_nodes"]:
                raise ValueError(f"{matrix.shape[0]} rows for {self._meta['num_nodes']} vertices")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, DataError):
                raise
            expected = "x_indptr, x_indices, x_data and the fact x_shape of a CSR matrix"
            raise DataError(argument=str(self.path), given=f"broken features x ({error})", expected=expected) from error
        return matrix

    def graph(self, access: str = "normal") -> Graph:
        """Return the graph over the maps: nothing is read, copied or checked; `access` as in `Graph.open`."""
        indptr, indices = self.array("indptr", access), self.array("indices", access)
        data = self.array("data", access) if "data" in self else None
        ids = self.array("edge_ids", access) if "edge_ids" in self else None
        origin = StoreOrigin(str(self.path), self.digest, access)
        return Graph._from_parts(indptr, indices, data, ids, self._meta["weighting"], origin)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> tuple[str, ...]:
        """Read everything, piece by piece in bounded memory: checksums first, then what a graph must satisfy.

        The rows' starts never fall and end at the number of edges; ids are in range; sources ascend within each row;
        weights are finite and at least 0; edge ids are at least 0 and lead to rows of the edge features; splits hold
        vertices.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(done, total)`` with bytes; checksums and structure are half of the total each.

        Returns
        -------
        tuple of str
            Names of the files that no checksum covers: ``("meta.json",)`` for a store that was written before there
            was one, else empty.

        Raises
        ------
        DataError
            Naming the file, and the piece of 64 MiB or the position.
        """
        _read_meta(self.path, self.path / META_FILE)
        total = 2 * self.nbytes

        def report(done: int) -> None:
            if progress is not None:
                progress(done, total)

        arrays = {name: self.array(name) for name in self._specs}
        verify_checksums(self.path, arrays, self._specs, report)
        verify_structure(self.path, arrays, self._meta, lambda done: report(self.nbytes + done))
        if "x" in self.feature_names and "x" not in self:
            self._sparse_features()
        report(total)
        return () if record_path(self.path / META_FILE).is_file() else (META_FILE,)

    def _check_ends(self) -> None:
        """Check the first and the last row start: the only contents that are read on opening."""
        starts, edges = self.array("indptr"), self._meta["num_edges"]
        if int(starts[0]) != 0 or int(starts[-1]) != edges:
            given = f"rows from {starts[0]} to {starts[-1]}"
            argument = str(self.path / array_file("indptr"))
            raise DataError(argument=argument, given=given, expected=f"from 0 to the number of edges, {edges}")

    def __repr__(self) -> str:
        return f"GraphStore({str(self.path)!r}, arrays={', '.join(self._specs)})"


def _identity(path: Path) -> FileIdentity | None:
    try:
        return FileIdentity.of(path.stat())
    except OSError:
        return None


def _read_meta(folder: Path, path: Path) -> str:
    if not folder.is_dir():
        what = "a file" if folder.exists() else "nothing there"
        raise DataError(argument=str(folder), given=what, expected="the folder of a store, with meta.json in it")
    if is_partial(folder):
        given = "the hidden folder of a store that is being written, or was left behind"
        raise DataError(argument=str(folder), given=given, expected="a store")
    with system_errors(path, "a store that can be read"):
        if not path.is_file():
            hint = "A conversion that was interrupted leaves no store: run it again."
            raise DataError(argument=str(folder), given="a folder without meta.json", expected="a store", hint=hint)
        if path.stat().st_size > LARGEST_META:
            raise DataError(argument=str(path), given=f"{path.stat().st_size} bytes", expected="at most 64 MiB")
        content = path.read_bytes()
        _check_meta(path, content)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(argument=str(path), given=f"no UTF-8 ({error})", expected="the meta.json of a store") from None


def _check_meta(path: Path, content: bytes) -> None:
    """Compare ``meta.json`` with its checksum, where it has one."""
    recorded = recorded_sha256(path)
    if recorded is not None:
        hint = (
            "The store is damaged: copy or convert it again. If meta.json was changed on purpose, "
            f"run: sha256sum {META_FILE} > {record_path(path).name}"
        )
        require_recorded(path, hashlib.sha256(content).hexdigest(), recorded, hint)
