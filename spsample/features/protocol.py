"""What everything that holds features has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["FeatureSource", "close_duplicate", "duplicate_of", "source_contents"]


@runtime_checkable
class FeatureSource(Protocol):
    """Rows of features by vertex id. Stores, caches and exchanges compose by wrapping one another.

    A source may have more, which is asked for where it is there: ``stored_dtype`` (that of an ``out`` which takes rows
    as they are kept), ``contents()`` (a number that tells rows from others), ``file_state()`` (what tells cheaply that
    its file was written to, see `spsample.features.watched`), ``on_device`` (True where rows come out on a device);
    ``announce(batches)`` (the ids of the next calls of ``gather``, one array a call, appended to what is known),
    ``forget()`` (what is known will not come) and ``looks_ahead`` (False where it makes no difference); and where
    several ranks gather together ``comm``, ``duplicate()`` and ``close()``.
    """

    @property
    def num_rows(self) -> int:
        """Number of vertices."""
        ...

    @property
    def dim(self) -> int:
        """Number of features per vertex."""
        ...

    def gather(self, ids: ArrayLike, out: Any = None, at: ArrayLike | None = None) -> NDArray[np.float32]:
        """Return the features of the vertices ``ids``: float32, C order, shape ``(len(ids), dim)``.

        With ``out`` they go there, and it is returned: to its rows ``at``, one for each id, or to all in order.
        """
        ...


def source_contents(source: Any) -> int | None:
    """Return the number that tells the rows of a source from others; None where it has none."""
    contents = getattr(source, "contents", None)
    found: int | None = None if contents is None else contents()
    return found


def duplicate_of(source: Any) -> Any:
    """Return the source over communicators of its own, for another thread; itself where it has none. Collective."""
    duplicate = getattr(source, "duplicate", None)
    return source if duplicate is None else duplicate()


def close_duplicate(source: Any) -> None:
    """Free what `duplicate_of` made; where that is the source itself, its maker closes it. Collective."""
    if hasattr(source, "duplicate"):
        source.close()
