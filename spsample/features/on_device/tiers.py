"""What tiers of rows have in common, wherever those that are not on the device come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels
    from spsample.features.protocol import FeatureSource

__all__ = ["Placeable", "Tiers"]


class Placeable(Protocol):
    """Rows that are to be gathered by a device, before it is known which of them are hot.

    Attributes
    ----------
    num_rows, dim : int
    row_bytes, map_bytes : int
        What a hot row takes on the device, and the map to the rows.
    """

    num_rows: int
    dim: int
    row_bytes: int
    map_bytes: int

    @property
    def source(self) -> FeatureSource | None:
        """Where rows come from that are not hot; None where the device reads them itself."""
        ...

    def placed(self, kernels: CudaKernels, hot: NDArray[np.int64]) -> Tiers:
        """Copy the rows of the vertices `hot`, ascending and distinct, to the device; collective where the source is.

        A session is open.
        """
        ...


class Tiers(Protocol):
    """Hot rows on a device, with the map that leads to them, and a way to the others. A session is open in each call.

    Attributes
    ----------
    form : str
        Of the numbers of a row, in words.
    row_bytes : int
    nbytes : int
    """

    form: str

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is kept."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept, the map included."""
        ...

    def gather(self, source: FeatureSource | None, vertices: Any, out: Any, at: Any) -> int:
        """Write rows of vertices, all on the device, to rows `at` of `out`; gives how many came from the source."""
        ...

    def missing(self, vertices: Any) -> NDArray[Any]:
        """Those of the vertices, in order, that the source is asked for."""
        ...

    def vertices(self) -> NDArray[np.int64]:
        """The hot vertices, ascending."""
        ...

    def kept(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The hot vertices, ascending, and a copy of their rows on the host."""
        ...
