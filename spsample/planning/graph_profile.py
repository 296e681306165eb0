"""`GraphProfile`: what of a graph decides memory and bytes, for one that is here and for one that is not."""

from __future__ import annotations

from dataclasses import dataclass

from spsample.sparse.operand import Weighting
from spsample.store import Graph


@dataclass(frozen=True)
class GraphProfile:
    """What of a graph and its features decides memory and bytes.

    Attributes
    ----------
    num_nodes, num_edges : int
        n, and the number of entries.
    id_bytes, weight_bytes : int
        Bytes of an entry's column and weight: 4 or 8, and 0, 4 or 8.
    feature_bytes : int
        Bytes of a vertex's features; 0 without features.
    weighting : str
        As of `Graph`.
    longest_row : int
        Entries of the longest row; counted in weighted graphs only, where kernels keep a number for each.
    """

    num_nodes: int
    num_edges: int
    id_bytes: int = 4
    weight_bytes: int = 0
    feature_bytes: int = 0
    weighting: Weighting = "unweighted"
    longest_row: int = 0

    @classmethod
    def of(cls, graph: Graph, feature_bytes: int = 0) -> GraphProfile:
        """Read the profile off a graph that is here.

        Examples
        --------
        >>> import spsample as sp
        >>> GraphProfile.of(sp.Graph([0, 2, 3], [0, 1, 0])).num_edges
        3
        """
        return cls(
            graph.num_nodes,
            graph.num_edges,
            graph.index_dtype.itemsize,
            0 if graph.data is None else graph.data.itemsize,
            feature_bytes,
            graph.weighting,
            _longest_row(graph) if graph.weighting == "weighted" else 0,
        )

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of A."""
        return self.id_bytes + self.weight_bytes


def _longest_row(graph: Graph) -> int:
    """Entries of the longest row, which the graph keeps."""
    if "longest row" not in graph.kept:
        graph.kept["longest row"] = int(graph.in_degrees().max(initial=0))
    length: int = graph.kept["longest row"]
    return length


__all__ = ["GraphProfile"]
