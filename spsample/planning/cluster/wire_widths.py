"""`WireWidths`: how many bytes each number of an exchange takes, for the traffic model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.planning.cluster.grid_shape import FloatArray

WORD_BYTES = 8  # of a number that is not packed: counts, batch ids, requests
EXPONENT_BYTES = 4
NORM_BYTES = 2  # of a squared column norm, about


@dataclass(frozen=True)
class WireWidths:
    """Bytes of what is sent.

    Attributes
    ----------
    id_bytes : int
        A vertex id, 4 or 8.
    weight_bytes : int
        An entry's weight; 0 where entries have none.
    edge_id_bytes : int
        An edge id, 8; 0 where they were not asked for.
    numerator_bytes : int
        A sum of numerators at least; counts take more where they are larger.
    row_normalized : bool
        Whether entries weigh one over the length of their row, which then travels too.
    """

    id_bytes: int = 4
    weight_bytes: int = 0
    edge_id_bytes: int = 0
    numerator_bytes: int = 1
    row_normalized: bool = False

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of a row of A."""
        return self.id_bytes + self.weight_bytes + self.edge_id_bytes

    @classmethod
    def of(cls, id_bytes: int, weight_bytes: int, weighting: str, *, edge_ids: bool = False) -> WireWidths:
        """The widths for entries of a graph, with edge ids where they are asked for."""
        return cls(id_bytes, weight_bytes, 8 * edge_ids, 1 if weighting == "unweighted" else 4, weighting == "row")


def widths(largest: NDArray[Any]) -> FloatArray:
    """Bytes of numbers up to `largest`: 1, 2, 4 or 8.

    Examples
    --------
    >>> widths(np.array([0, 255, 256, 2.0**32])).tolist()
    [1.0, 1.0, 2.0, 8.0]
    """
    found: FloatArray = np.array([1.0, 2.0, 4.0, 8.0])[np.searchsorted([255.0, 65535.0, 2.0**32 - 1], largest)]
    return found


def length_bytes(most: int) -> int:
    """Bytes of a number up to `most`; -1: not known.

    Examples
    --------
    >>> length_bytes(255), length_bytes(256), length_bytes(-1)
    (1, 2, 4)
    """
    return 4 if most < 0 or most > 65535 else 1 + (most > 255)


def numerator_bytes(most: FloatArray, wire: WireWidths) -> FloatArray:
    """Bytes of sums of up to `most` entries."""
    return np.maximum(widths(most), wire.numerator_bytes)


__all__ = ["EXPONENT_BYTES", "NORM_BYTES", "WORD_BYTES", "WireWidths", "length_bytes", "numerator_bytes", "widths"]
