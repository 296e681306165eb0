"""`smaller_graph`: a graph of a kind that is sampled in place of one that is too large to be here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spsample.common.checks import require_choice
from spsample.data.registry import load_dataset

if TYPE_CHECKING:
    from spsample.store import Graph

__all__ = ["smaller_graph"]

MOST_SMALL_ENTRIES, MOST_SMALL_SCALE, LEAST_SMALL_SCALE = 1 << 22, 18, 10


def smaller_graph(kind: str, num_nodes: int, average_degree: float) -> Graph:
    """A smaller graph of the kind, which is sampled instead.

    Parameters
    ----------
    kind : {"rmat", "planted"}
        Power-law degrees, or about the same degree everywhere.
    num_nodes : int
    average_degree : float
        Of the larger graph; the smaller one has about the same.

    Raises
    ------
    InputError
        If there is no such kind.
    """
    require_choice("kind", kind, ("rmat", "planted"))
    scale = smaller_scale(num_nodes, average_degree)
    if kind == "planted":
        return load_dataset(f"planted:{min(2**scale, num_nodes)},{max(round(average_degree), 1)}").graph
    wanted = average_degree / 2  # each pair is an edge either way
    graph = load_dataset(f"rmat:{scale},{max(round(wanted), 1)}").graph
    lost = graph.num_edges / (2 * max(round(wanted), 1) * graph.num_nodes)  # to repeated pairs
    return load_dataset(f"rmat:{scale},{max(round(wanted / lost), 1)}").graph


def smaller_scale(num_nodes: int, average_degree: float) -> int:
    """The power of two that its number of vertices is: some four million edges, at most 2^18 vertices.

    Examples
    --------
    >>> smaller_scale(10**8, 29), smaller_scale(5000, 15)
    (17, 12)
    """
    scale = LEAST_SMALL_SCALE
    while scale < MOST_SMALL_SCALE and 2 ** (scale + 1) * average_degree <= MOST_SMALL_ENTRIES:
        scale += 1
    return max(min(scale, num_nodes.bit_length() - 1), 1)
