"""`FeaturesAhead`: memory for what a loader knows of the next calls of `gather`, and for rows fetched by the bulk."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOTHING_AHEAD", "USE_BYTES", "FeaturesAhead"]

USE_BYTES = 16
"""Of a vertex that a batch will ask for: its id and its next use, in room for a power of two."""


@dataclass(frozen=True)
class FeaturesAhead:
    """What features take beside those of batches, by the number of vertices whose features a bulk needs.

    Attributes
    ----------
    known_bulks : int
        Bulks that are sampled before the one in use is over, so that sources know what they will be asked for: 0 or 1.
    use_bytes : int
        Of a vertex that a batch of such a bulk will ask for.
    row_bytes : int
        Of a row of a bulk that is fetched at once; 0 where each batch fetches its own.
    num_vertices : int
        Of the graph: a bulk fetches no row twice.

    Examples
    --------
    >>> ahead = FeaturesAhead(known_bulks=1, use_bytes=16, row_bytes=400, num_vertices=1000)
    >>> ahead.known_bytes(5000), ahead.fetched_bytes(5000)
    (160000, 400000)
    """

    known_bulks: int = 0
    use_bytes: int = 0
    row_bytes: int = 0
    num_vertices: int = 0

    def known_bytes(self, sources: int) -> int:
        """Bytes for what is known of the bulk in use and of the next ones, of `sources` vertices each."""
        return (1 + self.known_bulks) * self.use_bytes * sources if self.known_bulks else 0

    def fetched_bytes(self, sources: int) -> int:
        """Bytes of the rows of a bulk whose batches have `sources` vertices in all."""
        return self.row_bytes * min(sources, self.num_vertices)

    def nbytes(self, sources: int) -> int:
        """Bytes of both."""
        return self.known_bytes(sources) + self.fetched_bytes(sources)


NOTHING_AHEAD = FeaturesAhead()
"""Of a loader without features, and of one call."""
