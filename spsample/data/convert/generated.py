"""Generated graphs of any size: chunk by chunk what `rmat` and `planted` make in memory, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from spsample.data.convert.chunks import EdgeChunk
from spsample.data.philox import PhiloxStream
from spsample.data.rmat import rmat_pairs
from spsample.store.validation import require_int

if TYPE_CHECKING:
    from spsample.data.convert.sources import Origin

__all__ = ["RmatEdges", "generated"]


class RmatEdges:
    """The pairs of an R-MAT graph, in the order of the generator."""

    rereadable = False
    weight_dtype = None

    def __init__(self, scale: int, count: int, random_seed: int) -> None:
        self.name = f"rmat:{scale}"
        self.num_nodes: int | None = 1 << scale
        self._scale, self._count, self._seed = scale, require_int("count", count, minimum=0), random_seed

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        raise NotImplementedError


def generated(text: str, random_seed: int) -> Origin | None:
    return None
