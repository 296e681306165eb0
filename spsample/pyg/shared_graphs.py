"""Graphs of PyG's data, made once for all loaders of the same tensors."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

import torch

from spsample.store import Graph

if TYPE_CHECKING:
    from torch_geometric.data import Data


class _Made(NamedTuple):
    """A graph, and what it was made of; neither is kept alive."""

    graph: weakref.ref[Graph]
    tensors: list[weakref.ref[torch.Tensor]]
    versions: list[int]

    def is_of(self, tensors: list[torch.Tensor]) -> bool:
        """Whether it was made of these tensors as they are now."""
        return len(tensors) == len(self.tensors) and all(
            made() is tensor and version == tensor._version
            for made, tensor, version in zip(self.tensors, tensors, self.versions, strict=True)
        )


class SharedGraphs:
    """Graphs of data that loaders have now: they live as long as a loader does.

    Examples
    --------
    >>> from torch_geometric.data import Data
    >>> data, graphs = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2), SharedGraphs()
    >>> graph = graphs.of(data)
    >>> graphs.of(data) is graph
    True
    >>> data.edge_index[0, 0] = 1
    >>> graphs.of(data) is graph
    False
    """

    def __init__(self) -> None:
        self._made: list[_Made] = []

    def of(self, data: Data, weight_attr: str | None = None) -> Graph:
        """The graph of the edges and weights that data have now; errors as of `Graph.from_pyg`."""
        self._made = [one for one in self._made if one.graph() is not None]
        tensors = _tensors(data, weight_attr)
        found = (one.graph() for one in self._made if one.is_of(tensors)) if tensors else ()
        for graph in found:
            if graph is not None and graph.num_nodes == data.num_nodes:
                return graph
        graph = Graph.from_pyg(data, weight_attr)
        if tensors:
            versions = [tensor._version for tensor in tensors]
            self._made.append(_Made(weakref.ref(graph), [weakref.ref(tensor) for tensor in tensors], versions))
        return graph


def _tensors(data: Data, weight_attr: str | None) -> list[torch.Tensor]:
    """Edges and weights; nothing where torch does not count how often they were changed."""
    names = ["edge_index"] if weight_attr is None else ["edge_index", str(weight_attr)]
    held = [data.get(name) for name in names]
    is_counted = all(isinstance(one, torch.Tensor) and not one.is_inference() for one in held)
    return held if is_counted and "adj_t" not in data else []
