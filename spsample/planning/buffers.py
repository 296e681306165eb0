"""`Buffers`: what a loader holds beside the bulk that is made: finished bulks, features, and what is known of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from spsample.sampling.bulk import BulkSample

USE_BYTES = 16
"""Bytes of a vertex that a batch will ask for: its id and its next use, in room for a power of two."""


@dataclass(frozen=True)
class FeaturesAhead:
    """Memory of features beside those of batches, by the number of vertices whose features a bulk needs.

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
"""No features beside those of batches: of a loader without features, and of one call."""


class SharedBulk(Protocol):
    """A rank's part of minibatches that ranks share: an iterable of these.

    Attributes
    ----------
    nbytes : int
        Bytes of their arrays.
    """

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Buffers:
    """Contents of a loader while it makes a bulk.

    Attributes
    ----------
    prefetch : int or None
        Bulks that are sampled ahead; None for a call, while which no other bulk exists.
    feature_batches, feature_bytes : int
        Batches that hold features at a time, and the bytes of a vertex's.
    ahead : FeaturesAhead
        Features beside those of batches, and how many more bulks are sampled for them.
    share : function or None
        Gives a rank's part of a bulk once ranks have shared out its batches, collective; None where each keeps its own.
    """

    prefetch: int | None = None
    feature_batches: int = 0
    feature_bytes: int = 0
    ahead: FeaturesAhead = NOTHING_AHEAD
    share: Callable[[BulkSample], SharedBulk] | None = None

    @property
    def finished(self) -> int:
        """Finished bulks that exist while one is made."""
        return 0 if self.prefetch is None else max(self.prefetch, 1) + self.ahead.known_bulks


NO_BUFFERS = Buffers()
"""No buffers: those of a call of `bulk_sample`."""
