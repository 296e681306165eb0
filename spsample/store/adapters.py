"""Arrays of a graph from PyG's data and DGL's graphs; neither is imported, the data bring their own methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import short
from spsample.errors import DTypeError, InputError
from spsample.store import construction
from spsample.store.construction import GraphArrays


def pyg_arrays(data: Any, weight_attr: str | None) -> GraphArrays:
    """Return the arrays of the graph of a ``torch_geometric.data.Data``; edge ids are columns of its ``edge_index``.

    Raises
    ------
    DTypeError, InputError
        If it has no edges, or not the weights that are asked for.
    """
    name, edges = _edges_of(data)
    num_nodes = getattr(data, "num_nodes", None)
    if name == "adj_t":
        _refuse_merged(data, edges.shape[1])
    weights = None if weight_attr is None else _weights(data, weight_attr)
    names = (f"data.{name}", f"data.{weight_attr}")
    return construction.from_edges(edges, None if num_nodes is None else int(num_nodes), weights, names, _COUNT)


def host_array(held: Any) -> NDArray[Any]:
    """Return an attribute of PyG's data as an array: also of a tensor that is on a GPU, needs gradients or is bfloat16.

    Examples
    --------
    >>> host_array([1, 2])
    array([1, 2])
    """
    if hasattr(held, "detach"):
        held = held.detach().cpu()
        return np.asarray(held.float() if str(held.dtype) == "torch.bfloat16" else held)
    return np.asarray(held)


def _edges_of(data: Any) -> tuple[str, NDArray[Any]]:
    """Return the attribute of the edges, and these as sources and targets; `adj_t` goes first, as in PyG."""
    adj_t = getattr(data, "adj_t", None)
    if adj_t is not None:
        return "adj_t", _entries(adj_t)
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise DTypeError(
            argument="data",
            given=f"{type(data).__name__} without edge_index",
            expected="torch_geometric.data.Data with edges",
            hint=_HINT_TYPED if hasattr(data, "edge_types") else "",
        )
    return "edge_index", host_array(edge_index)


_COUNT = "data.num_nodes is {}. Where it is not set, PyG takes it from the rows of x, or of what else there is."
_HINT_TYPED = "Graphs have one type of vertices and edges: data.to_homogeneous() makes one of all types."


def _entries(adj_t: Any) -> NDArray[Any]:
    """The entries of a sparse matrix whose rows are targets, in its order."""
    layout = str(getattr(adj_t, "layout", ""))
    if layout == "torch.sparse_csr":
        source = host_array(adj_t.col_indices())
        target = construction.targets(host_array(adj_t.crow_indices()), source.dtype)
    elif layout == "torch.sparse_coo":
        target, source = host_array(adj_t._indices())
    elif hasattr(adj_t, "coo"):
        target, source = (host_array(ends) for ends in adj_t.coo()[:2])
    else:
        given = f"{type(adj_t).__name__} of layout {layout}" if layout else f"{type(adj_t).__name__}"
        expected = "a torch_sparse.SparseTensor, or a tensor of layout torch.sparse_csr or torch.sparse_coo"
        raise DTypeError(argument="data.adj_t", given=given, expected=expected, hint="Or edges in data.edge_index.")
    return np.stack([source, target])


def _refuse_merged(data: Any, entries: int) -> None:
    """Refuse a sparse tensor of torch that has not an entry for each edge that has attributes."""
    if not hasattr(data.adj_t, "layout"):
        return
    held = (getattr(data, key, None) for key in ("edge_attr", "edge_weight", "edge_type"))
    rows = [len(attribute) for attribute in held if attribute is not None and len(attribute) != entries]
    if rows:
        hint = "torch merges parallel edges: apply torch_geometric.transforms.RemoveDuplicatedEdges() before"
        if getattr(data, "edge_index", None) is not None:
            hint += ", or del data.adj_t: data.edge_index has the edges too"
        raise InputError(
            argument="data.adj_t",
            given=f"{entries} entries, where attributes of the data have {rows[0]} edges",
            expected="an entry for each edge",
            hint=f"{hint}.",
        )


def _weights(data: Any, name: Any) -> NDArray[Any]:
    held = getattr(data, name, None) if isinstance(name, str) else None
    if held is None:
        expected = "an attribute of the data with a weight per edge"
        raise InputError(argument="weight_attr", given=repr(name), expected=expected)
    return host_array(held)


def dgl_arrays(graph: Any, weight_name: Any) -> GraphArrays:
    """Return the arrays of the graph of a ``dgl.DGLGraph``; edge ids are those of DGL.

    Raises
    ------
    DTypeError, InputError
        If it is none, has several types or is a block, or lacks the weights that are asked for.
    """
    expected = "a dgl.DGLGraph of one type of vertices and edges"
    if not all(hasattr(graph, name) for name in ("is_homogeneous", "edges", "num_nodes", "edata")):
        raise DTypeError(argument="graph", given=f"{short(graph)} of type {type(graph).__name__}", expected=expected)
    if getattr(graph, "is_block", False) or not graph.is_homogeneous:
        given, hint = "a graph of several types", "dgl.to_homogeneous(graph) makes one."
        if getattr(graph, "is_block", False):
            given, hint = "a block, which is a sample already", ""
        raise DTypeError(argument="graph", given=given, expected=expected, hint=hint)
    source, target = (host_array(ends) for ends in graph.edges(order="eid"))
    weights = None
    if weight_name is not None:
        if not isinstance(weight_name, str) or weight_name not in graph.edata:
            expected = f"the name of weights in graph.edata: {', '.join(map(repr, graph.edata)) or 'it has none'}"
            raise InputError(argument="weight_name", given=short(weight_name), expected=expected)
        weights = host_array(graph.edata[weight_name])
    names = ("graph.edges()", f"graph.edata[{weight_name!r}]")
    return construction.from_edges(np.stack([source, target]), int(graph.num_nodes()), weights, names)
