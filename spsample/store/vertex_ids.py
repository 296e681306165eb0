"""The user's ids of vertices: names, or integers other than 0 to n - 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import short
from spsample.common.lazily import lazily
from spsample.errors import InputError
from spsample.store.validation import as_id_vector, as_vertex_ids

if TYPE_CHECKING:
    from spsample.store.mapped_store import MappedStore


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
