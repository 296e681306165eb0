"""Vertices and edges of a sampled batch by hop, on the batch's ``edge_index``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from typing import Any


class Hops:
    """Numbers of vertices and edges of a batch within each hop: layers leave out what no later one reads.

    It is an attribute of the batch's ``edge_index``, which stays a plain tensor. An ``edge_index`` that was changed in
    place is no longer the sampler's: `is_of` says so. Pickled or copied it becomes None, as the copy may be changed.
    torch does not count the changes of a tensor that was made under ``inference_mode``: a copy gets the attribute.

    Parameters
    ----------
    edge_index
        The tensor, (2, E), whose columns are the edges by hop; their targets ascend.
    nodes, edges : tuple of int
        Vertices and edges within 0, 1, ... hops.

    Examples
    --------
    >>> import torch
    >>> edge_index = torch.tensor([[2, 3, 4], [0, 1, 2]])
    >>> edge_index = Hops.put_on(edge_index, [2, 2, 1], [2, 1])
    >>> edge_index.hops.nodes, edge_index.hops.edges
    ((2, 4, 5), (0, 2, 3))
    >>> edge_index += 0
    >>> edge_index.hops.is_of(edge_index)
    False
    """

    def __init__(self, edge_index: Any, nodes: tuple[int, ...], edges: tuple[int, ...]) -> None:
        self.nodes, self.edges = nodes, edges
        self._version = edge_index._version
        self._made: dict[Hashable, Any] = {}

    @classmethod
    def put_on(cls, edge_index: Any, num_sampled_nodes: Sequence[int], num_sampled_edges: Sequence[int]) -> Any:
        """The tensor with the attribute ``hops``, of counts as a PyG batch has them: what each hop added."""
        edge_index = _counted(edge_index)
        edge_index.hops = cls(edge_index, tuple(accumulate(num_sampled_nodes)), (0, *accumulate(num_sampled_edges)))
        return edge_index

    def put_on_copy(self, edge_index: Any) -> Any:
        """Another tensor, which has the same edges, with the attribute."""
        edge_index = _counted(edge_index)
        edge_index.hops = Hops(edge_index, self.nodes, self.edges)
        return edge_index

    def is_of(self, edge_index: Any) -> bool:
        """Return whether the tensor still has the edges that were sampled."""
        return bool(self._version == edge_index._version)

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what `make` returned when it was first called for `key`: layers of a batch share it."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def __reduce__(self) -> tuple[Any, ...]:
        """None instead."""
        return type(None), ()


def _counted(edge_index: Any) -> Any:
    """The tensor, or a copy of which torch counts changes."""
    if not edge_index.is_inference():
        return edge_index
    import torch

    with torch.inference_mode(False):
        return edge_index.clone()
