"""`GraphStore`: a store on disk: its graph, its features, and whether it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spsample.common.checks import require_type
from spsample.common.lazily import lazily
from spsample.errors import DataError, InputError
from spsample.store.folder import file_error
from spsample.store.graph import Graph, graph_of
from spsample.store.layout import META_FILE
from spsample.store.mapped_store import MappedStore, read_meta
from spsample.store.row_order import ReorderedRows
from spsample.store.verification import record_path, verify_checksums, verify_structure
from spsample.store.vertex_ids import VertexIds, named_vertices

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
