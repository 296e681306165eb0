"""`GraphStore`: a store on disk: its graph, its features, and whether it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_type, short
from spsample.common.lazily import lazily
from spsample.errors import DataError, InputError
from spsample.store.folder import file_error
from spsample.store.graph import Graph, graph_of
from spsample.store.layout import META_FILE
from spsample.store.mapped_store import MappedStore, read_meta
from spsample.store.row_order import ReorderedRows
from spsample.store.validation import as_id_vector, as_vertex_ids
from spsample.store.verification import record_path, verify_checksums, verify_structure

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class GraphStore(MappedStore):
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

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names that `features` takes: ``"x"``, and those that ``meta.json`` lists."""
        own = ["x"] if "x" in self or "x_data" in self else []
        listed = [*self._meta.get("node_features", []), *self._meta.get("edge_features", [])]
        return tuple(dict.fromkeys(own + listed))

    def features(self, name: str = "x") -> Any:
        """Return a feature array of two dimensions as a read-only map; ``"x"`` may also be a SciPy CSR matrix.

        Rows are by vertex, or by edge id: where rows of vertices were moved, what is returned is a
        `spsample.store.row_order.ReorderedRows`, which reads as an array does.

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
        array = array[:, None] if array.ndim == 1 else array
        rows = None if name in self._meta.get("edge_features", []) else self.row_of_vertex()
        return array if rows is None else ReorderedRows(array, rows)

    def _sparse_features(self) -> csr_array:
        from scipy.sparse import csr_array

        try:
            data, indices, indptr = (self.array(f"x_{part}") for part in ("data", "indices", "indptr"))
            matrix = csr_array((data, indices, indptr), shape=tuple(self._meta["x_shape"]))
            matrix.check_format(full_check=True)
            if matrix.shape[0] != self._meta["num_nodes"]:
                raise ValueError(f"{matrix.shape[0]} rows for {self._meta['num_nodes']} vertices")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, DataError):
                raise
            expected = "x_indptr, x_indices, x_data and the fact x_shape of a CSR matrix"
            raise file_error(self.path, f"broken features x ({error})", expected) from error
        return matrix

    @lazily
    def vertices(self) -> VertexIds:
        """The ids of the vertices in the input, and the way back: ``vertices.names(ids)``, ``vertices.ids(names)``.

        They are strings or integers where they were converted so, else the vertices 0 to n - 1 themselves.
        """
        return named_vertices(self)

    def graph(self, access: str = "normal") -> Graph:
        """Return the graph over the maps: nothing is read, copied or checked; `access` as in `Graph.open`."""
        return graph_of(self.graph_arrays(access))

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
        read_meta(self.path, self.path / META_FILE)
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

    def __repr__(self) -> str:
        return f"GraphStore({str(self.path)!r}, arrays={', '.join(self._specs)})"


def named_vertices(store: MappedStore) -> VertexIds:
    """Return the names of a store's vertices: strings, original ids, or the vertices themselves."""
    if "names_ptr" in store:
        return _Strings(store)
    return _Integers(store) if "original_ids" in store else VertexIds(store)


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
        return self._names(as_vertex_ids("ids", ids, self._num_nodes).astype(np.int64))

    def ids(self, names: Any) -> NDArray[np.int64]:
        """Return the vertex of each of some names; arguments and results as of `names`, the other way round.

        Raises
        ------
        InputError, DTypeError
            If no vertex has such a name; the first one is named.
        """
        words = self._as_names(names)
        vertices = self._ids(words)
        unknown = (vertices < 0) | (vertices >= self._num_nodes)
        if unknown.any():
            at = int(np.argmax(unknown))
            name = words[at].item() if isinstance(words, np.ndarray) else words[at]
            given = f"{short(name)} at position {at}"
            raise InputError(argument="names", given=given, expected=f"names of vertices of {self._store.path}")
        return vertices

    def _names(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        return ids

    def _as_names(self, names: Any) -> Any:
        """Check the type of names."""
        return as_id_vector("names", names).astype(np.int64)

    def _ids(self, names: Any) -> NDArray[np.int64]:
        """The vertex of each name; one out of range for an unknown name."""
        ids: NDArray[np.int64] = names
        return ids

    def __repr__(self) -> str:
        return f"VertexIds(num_nodes={self._num_nodes})"


class _Integers(VertexIds):
    """Names that ``original_ids`` holds."""

    def _names(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self._store.array("original_ids"))[ids]

    def _ids(self, names: Any) -> NDArray[np.int64]:
        order, ascending = self._index
        places = np.minimum(np.searchsorted(ascending, names), self._num_nodes - 1)
        return np.where(ascending[places] == names, order[places], -1)

    @lazily
    def _index(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ids = self._store.array("original_ids")
        order = np.argsort(ids, kind="stable")
        return order, np.asarray(ids)[order]


class _Strings(VertexIds):
    """Names that ``names_ptr`` and ``names_data`` hold."""

    def _names(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        starts, data = self._store.array("names_ptr"), self._store.array("names_data")
        bounds = zip(starts[ids].tolist(), starts[ids + 1].tolist(), strict=True)
        names = np.empty(len(ids), object)
        names[:] = [bytes(data[begin:end]).decode("utf-8", "surrogateescape") for begin, end in bounds]
        return names

    def _as_names(self, names: Any) -> Any:
        values = names.tolist() if isinstance(names, np.ndarray) else names
        words = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
        if isinstance(values, str) or not all(isinstance(word, str) for word in words):
            raise InputError(argument="names", given=short(names), expected="a sequence of strings")
        return words

    def _ids(self, names: Any) -> NDArray[np.int64]:
        return np.array([self._index.get(name, -1) for name in names], np.int64)

    @lazily
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._names(np.arange(self._num_nodes)))}
