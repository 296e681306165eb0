"""What feature sources are told of the future: the vertices of the calls of `gather` that come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spsample.common.checks import require_iterable
from spsample.store.validation import as_vertex_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["announce", "batches_of_ids", "forget", "looks_ahead"]


def looks_ahead(source: Any) -> bool:
    """Whether a source does better where it knows the future.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.features import CachedFeatures, FeatureStore
    >>> store = FeatureStore(np.eye(4))
    >>> looks_ahead(store), looks_ahead(CachedFeatures(store, 0, np.ones(4)))
    (False, False)
    """
    return hasattr(source, "announce") and bool(getattr(source, "looks_ahead", True))


def batches_of_ids(batches: Any, num_rows: int) -> list[NDArray[Any]]:
    """Check what a source of `num_rows` rows is told.

    Raises
    ------
    InputError, DTypeError
        If one is no array of vertex ids.

    Examples
    --------
    >>> batches_of_ids([[0, 2], [1]], 3)
    [array([0, 2]), array([1])]
    """
    each = require_iterable("batches", batches, "ids of each call")
    return [as_vertex_ids("batches", batch, num_rows) for batch in each]


def announce(source: Any, batches: Sequence[NDArray[Any]]) -> None:
    """Tell a source the ids of the next calls of `gather`, one array a call, where it wants to know.

    Repeated calls append. No batches: nothing more is known for now. Not collective.
    """
    if looks_ahead(source):
        source.announce(batches)


def forget(source: Any) -> None:
    """Tell a source that what was announced and not yet gathered will not come, where it wants to know."""
    if looks_ahead(source) and hasattr(source, "forget"):
        source.forget()
