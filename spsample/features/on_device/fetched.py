"""Rows of a bulk that were gathered once, on a device: its batches are read from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spsample.backends import get_backend
from spsample.features.on_device.addresses import row_addresses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels
    from spsample.features.protocol import FeatureSource

__all__ = ["FetchedRows"]


class FetchedRows:
    """Rows of some vertices, gathered by a source whose rows come out on a device; collective where that is.

    Parameters
    ----------
    features : FeatureSource
    vertices : int array
        On the host.
    """

    def __init__(self, features: FeatureSource, vertices: NDArray[Any]) -> None:
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        with self._kernels.session():
            self._rows: Any = features.gather(vertices)
            self._addresses = self._kernels.to_device(row_addresses(self._kernels.device, self._rows))

    def gather(self, places: NDArray[Any]) -> Any:
        """Rows by their places among the vertices, repeats allowed: a float32 device array."""
        dim = int(self._rows.shape[1])
        with self._kernels.session():
            to_read = self._kernels.to_device(places)
            self._kernels.device.use(self._rows)
            return self._kernels.gather_rows_at(self._addresses, to_read, dim, "float32")
