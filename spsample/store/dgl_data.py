"""What a graph takes from DGL's graphs; DGL is not imported, the graph brings its own methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from spsample.common.checks import short
from spsample.errors import DTypeError, InputError
from spsample.store import construction
from spsample.store.construction import GraphArrays
from spsample.store.pyg_data import host_array

__all__ = ["dgl_graph_arrays"]


def dgl_graph_arrays(graph: Any, weight_name: str | None) -> GraphArrays:
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
        if weight_name not in graph.edata:
            expected = f"the name of weights in graph.edata: {', '.join(map(repr, graph.edata)) or 'it has none'}"
            raise InputError(argument="weight_name", given=short(weight_name), expected=expected)
        weights = host_array(graph.edata[weight_name])
    names = ("graph.edges()", f"graph.edata[{weight_name!r}]")
    return construction.from_edges(np.stack([source, target]), int(graph.num_nodes()), weights, names)
