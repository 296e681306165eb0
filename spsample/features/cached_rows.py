"""Rows of a feature source that are kept in memory, with the map that leads to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import collective
from spsample.comm.objects import comm_of
from spsample.features.gathering import row_reader
from spsample.features.places import places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features.protocol import FeatureSource

__all__ = ["CachedRows", "row_bytes_of", "stored_dtype"]

_CHUNK_BYTES = 64 << 20
"""Of rows that are read at a time."""

_LINE_BYTES = 64


class CachedRows:
    """Rows of some vertices of a feature source, read from it; collective where that is.

    Parameters
    ----------
    source : FeatureSource
    vertices : int64 array
        Whose rows are kept: ascending and distinct. Ranks may keep other ones.

    Attributes
    ----------
    dtype : numpy.dtype
        That of their numbers.
    places : Places
        Which vertex has a row, and which row it is.
    reader : RowReader
        Gives rows by place.

    Examples
    --------
    >>> from spsample.features.memory import FeatureStore
    >>> kept = CachedRows(FeatureStore(np.arange(8, dtype=np.int8).reshape(4, 2)), np.array([1, 3]))
    >>> kept.reader.rows.tolist(), kept.nbytes
    ([[2, 3], [6, 7]], 12)
    """

    def __init__(self, source: FeatureSource, vertices: NDArray[np.int64]) -> None:
        self.dtype = stored_dtype(source)
        with collective(comm_of(source), call="memory for cached features"):
            self.places = places_of(vertices, source.num_rows)
            rows = _aligned((len(vertices), source.dim), self.dtype)
        at_once = max(1, _CHUNK_BYTES // max(1, row_bytes_of(source)))
        for first in range(0, _most_rows(comm_of(source), len(vertices)), at_once):
            part = vertices[first : first + at_once]
            source.gather(part, rows[first : first + len(part)])
        self.reader = row_reader(rows)

    def gather(self, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Read the rows of those ids that are kept to their places in `out`; give the positions of the others.

        Raises
        ------
        InputError
            If an id is out of range.
        """
        return self.places.gather(self.reader, ids, out, at)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(self.reader.dim * self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of the map to them."""
        return int(self.reader.rows.nbytes) + self.places.nbytes


def stored_dtype(source: FeatureSource) -> np.dtype[Any]:
    """In which a source keeps its rows and can give them; float32, where it does not say."""
    return np.dtype(getattr(source, "stored_dtype", np.float32))


def row_bytes_of(source: FeatureSource) -> int:
    """Bytes of a row as it is cached."""
    return stored_dtype(source).itemsize * source.dim


def _most_rows(comm: Communicator, number: int) -> int:
    """The largest number that a rank has; collective."""
    return number if comm.size == 1 else int(comm.all_reduce(np.array([number]), "max", phase="set-up")[0])


def _aligned(shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """New memory that begins with a line of the processor's caches, so that short rows do not lie on two."""
    size = shape[0] * shape[1] * dtype.itemsize
    memory = np.empty(size + _LINE_BYTES, np.uint8)
    first = -memory.ctypes.data % _LINE_BYTES
    return memory[first : first + size].view(dtype).reshape(shape)
