"""Ways in which a cache decides which rows it keeps: one for all time, or by what is known of the future."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.common.checks import require_choice
from spsample.features.caching.cached_chosen import ChosenRows, rows_of
from spsample.features.caching.cached_chosen import map_bytes as chosen_map_bytes
from spsample.features.caching.cached_lookahead import LookaheadRows
from spsample.features.kept_rows import KeptRows
from spsample.features.slot_map import slot_map_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.features.source import FeatureSource

__all__ = ["REPLACEMENTS", "Replacement", "Rows", "replacement_named"]

Rows = KeptRows | ChosenRows | LookaheadRows
"""Rows that a cache keeps."""


class Replacement(NamedTuple):
    """One of these ways.

    Attributes
    ----------
    name : str
    looks_ahead : bool
        Whether it goes by announcements.
    map_bytes : function
        From the number of vertices and the bytes of a row to the bytes of the map to rows: in all, and beside each row.
    rows_of : function
        From a source, vertices, ascending and distinct, and the scores of all vertices to the rows that are kept.
    """

    name: str
    looks_ahead: bool
    map_bytes: Callable[[int, int], tuple[int, int]]
    rows_of: Callable[[FeatureSource, NDArray[np.int64], NDArray[Any]], Rows]

    def keep(self, source: FeatureSource, vertices: NDArray[np.int64], scores: NDArray[Any] | None) -> Rows:
        """The rows of these vertices, at first; collective where the source is.

        Where all rows are kept, or none, there is nothing to replace, and no scores are needed.
        """
        return KeptRows(source, vertices) if scores is None else self.rows_of(source, vertices, scores)


REPLACEMENTS = {
    way.name: way
    for way in (
        Replacement(
            "static", False, lambda n, _: (slot_map_bytes(n), 0), lambda source, vertices, _: KeptRows(source, vertices)
        ),
        Replacement("lookahead", True, chosen_map_bytes, rows_of),
    )
}


def replacement_named(name: Any) -> Replacement:
    """The way of that name.

    Raises
    ------
    InputError, DTypeError
        If there is none.

    Examples
    --------
    >>> replacement_named("static").map_bytes(1_000_000, 400)
    (250000, 0)
    """
    require_choice("replacement", name, tuple(REPLACEMENTS))
    return REPLACEMENTS[name]
