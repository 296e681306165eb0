"""The tuple that PyG's bipartite examples unpack."""

from __future__ import annotations

from typing import Any, NamedTuple


class EdgeIndex(NamedTuple):
    """One block: `edge_index` (2, E) of local (source, target), `e_id` or None, `size = (n_src, n_dst)`.

    Examples
    --------
    >>> edge_index, e_id, size = EdgeIndex("edges", None, (3, 2))
    >>> size
    (3, 2)
    """

    edge_index: Any
    e_id: Any
    size: tuple[int, int]

    def to(self, *args: Any, **kwargs: Any) -> EdgeIndex:
        """A copy on another device."""
        e_id = None if self.e_id is None else self.e_id.to(*args, **kwargs)
        return EdgeIndex(self.edge_index.to(*args, **kwargs), e_id, self.size)
