"""`RowKeeper`: some rows that are kept near, in front of a source that has all of them; and their counts."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.common.locks import renewed
from spsample.errors import InputError
from spsample.features.file_guard import FileState
from spsample.features.source import FeatureSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from spsample.comm import Communicator

__all__ = ["CacheCounts", "Counter", "RowKeeper", "require_host_source"]


class CacheCounts(NamedTuple):
    """Rows that a source which keeps some near has gathered, by the place that they came from.

    Attributes
    ----------
    hits, misses : int
        Rows that were kept, and rows from the source, repeats counted.
    hit_bytes, miss_bytes : int
        Their bytes, as they are kept.

    Examples
    --------
    >>> CacheCounts(hits=3, misses=1, hit_bytes=24, miss_bytes=8).hit_share
    0.75
    """

    hits: int
    misses: int
    hit_bytes: int
    miss_bytes: int

    def as_dict(self) -> dict[str, int]:
        """Return plain Python values, ready for JSON.

        Examples
        --------
        >>> CacheCounts(3, 1, 24, 8).as_dict()
        {'hits': 3, 'misses': 1, 'hit_bytes': 24, 'miss_bytes': 8}
        """
        return {name: int(value) for name, value in self._asdict().items()}

    @property
    def hit_share(self) -> float:
        """Hits of all rows; 0 where there are none."""
        return self.hits / max(self.hits + self.misses, 1)


class Counter:
    """Rows by the place that they came from, counted by several threads.

    Parameters
    ----------
    kinds : int
        Number of these places.

    Examples
    --------
    >>> counter = Counter(kinds=2)
    >>> counter.add(3, 1)
    >>> CacheCounts(*counter.read(row_bytes=8))
    CacheCounts(hits=3, misses=1, hit_bytes=24, miss_bytes=8)
    """

    def __init__(self, kinds: int) -> None:
        self._adding = renewed(Lock())
        self._rows = [0] * kinds

    def add(self, *rows: int) -> None:
        """Count some rows from each place."""
        with self._adding:
            self._rows = [before + more for before, more in zip(self._rows, rows, strict=True)]

    def read(self, row_bytes: int) -> list[int]:
        """Rows from each place, then their bytes."""
        with self._adding:
            rows = self._rows
        return [*rows, *(number * row_bytes for number in rows)]

    def reset(self) -> None:
        """Begin at 0 again."""
        with self._adding:
            self._rows = [0] * len(self._rows)


class RowKeeper(FeatureSource):
    """Rows of some vertices, kept near, in front of a source that has all of them: its fallback.

    Which rows these are, and where they lie, is a matter of the class. It writes rows in ``_read``, and says in
    `_recipe` from what it is made again in another process. All else is that of the fallback.

    Attributes
    ----------
    source : FeatureSource
        The fallback.
    """

    source: Any

    def _begin(self, source: FeatureSource, kinds: int) -> None:
        """Hold a fallback, and count rows by so many places that they come from."""
        self.source, self._counter, self._holds_duplicate = source, Counter(kinds), False
        self.num_rows, self.dim = source.num_rows, source.dim

    @abstractmethod
    def _recipe(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A function that makes these features again, and its arguments."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self.comm.size > 1:
            raise InputError(
                argument="features",
                given=f"{type(self).__name__} on several ranks, to be pickled",
                expected="features of one rank; else make them where they are used",
            )
        return self._recipe()

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    @property
    def comm(self) -> Communicator:
        """The ranks of the source."""
        return self.source.comm  # type: ignore[no-any-return]

    def reset_counts(self) -> None:
        """Count from 0 again."""
        self._counter.reset()

    def fingerprint(self) -> int | None:
        """Return what the source does: a number that tells its rows from others, or None."""
        return self.source.fingerprint()  # type: ignore[no-any-return]

    def file_state(self) -> FileState | None:
        """Return that of the source: what tells cheaply that its file was written to."""
        return self.source.file_state()  # type: ignore[no-any-return]

    @property
    def looks_ahead(self) -> bool:
        """Whether the source does better where it is told the next calls."""
        return self.source.looks_ahead  # type: ignore[no-any-return]

    def _fail(self, error: Exception) -> None:
        self.source._fail(error)

    def duplicate(self) -> Self:
        """Return these features over a duplicate of the source, for another thread; rows and counts are shared.

        Collective where the source is.
        """
        twin = copy(self)
        twin.source = self.source.duplicate()
        twin._holds_duplicate = twin.source is not self.source
        return twin

    def close(self) -> None:
        """Free what a duplicate of the source holds; a source that is shared stays open. Collective where it is."""
        if self._holds_duplicate:
            self.source.close()


def require_host_source(argument: str, source: FeatureSource, keeper: str) -> None:
    """Refuse a source whose rows come out on a device.

    Raises
    ------
    InputError
    """
    if source.device is not None:
        raise InputError(
            argument=argument,
            given=f"{type(source).__name__}, whose rows are on a device",
            expected="a source in the memory of the host",
            hint=f"The device goes in front: DeviceFeatures({keeper}(source, ...), hot, ranking, ...).",
        )
