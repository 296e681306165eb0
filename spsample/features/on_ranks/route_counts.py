"""Where `RoutedFeatures` found the rows that it gathered."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RouteCounts"]


class RouteCounts(NamedTuple):
    """What `RoutedFeatures` has gathered on this rank, by the place that rows came from.

    Attributes
    ----------
    hits, peer_hits, misses : int
        Rows from this rank's own copies, from copies of other ranks, and from the source; repeats counted.
    hit_bytes, peer_bytes, miss_bytes : int
        Their bytes, as they are kept.

    Examples
    --------
    >>> counts = RouteCounts(hits=2, peer_hits=1, misses=1, hit_bytes=16, peer_bytes=8, miss_bytes=8)
    >>> counts.hit_share, counts.peer_share
    (0.5, 0.25)
    """

    hits: int
    peer_hits: int
    misses: int
    hit_bytes: int
    peer_bytes: int
    miss_bytes: int

    @property
    def rows(self) -> int:
        """All rows."""
        return self.hits + self.peer_hits + self.misses

    @property
    def hit_share(self) -> float:
        """Hits of all rows; 0 where there are none."""
        return self.hits / max(self.rows, 1)

    @property
    def peer_share(self) -> float:
        """Peer hits of all rows; 0 where there are none."""
        return self.peer_hits / max(self.rows, 1)
