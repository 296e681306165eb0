"""An array in two tiers: hot rows on a device, the others in pinned memory of the host, which it reads row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from spsample.features.formats import AsStored, Int8, RowFormat, as_rows, format_for
from spsample.features.on_device.addresses import row_addresses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels
    from spsample.features.protocol import FeatureSource

__all__ = ["ArrayRows", "ArrayTiers"]

_FORMS = {"float32": "float32", "float16": "float16", "uint16": "bfloat16", "int8": "int8"}
"""What kernels call the numbers of each type."""


class ArrayRows:
    """The rows of an array in the form in which they are kept; see `Placeable`.

    Parameters
    ----------
    x
        Shape (vertices, features).
    dtype : str or None
        As of `DeviceFeatures`.
    """

    source = None

    def __init__(self, x: Any, dtype: str | None) -> None:
        rows = _dense(as_rows(x))
        self.format = _format(rows, dtype)
        self.encoded: NDArray[Any] = self.format.encode(rows)
        self.num_rows, self.dim = (int(size) for size in rows.shape)
        self.row_bytes = int(self.encoded.itemsize * self.dim)
        self.map_bytes = 8 * self.num_rows

    def placed(self, kernels: CudaKernels, hot: NDArray[np.int64]) -> ArrayTiers:
        """Copy all rows, those of the vertices `hot` to the device."""
        return ArrayTiers(self, kernels, hot)


class ArrayTiers:
    """Both tiers and the address of every row; see `Tiers`. One kernel reads both, so a batch needs no second pass."""

    def __init__(self, rows: ArrayRows, kernels: CudaKernels, hot: NDArray[np.int64]) -> None:
        device, encoded = kernels.device, rows.encoded
        self.form, self.row_bytes, self._dim = rows.format.name, rows.row_bytes, rows.dim
        self._kernels, self._kind = kernels, _FORMS[rows.format.dtype.name]
        is_hot = np.zeros(rows.num_rows, np.bool_)
        is_hot[hot] = True
        cold = np.flatnonzero(~is_hot)
        self.tiers = device.to_device(encoded[hot]), device.pinned(encoded[cold])
        places = np.zeros(rows.num_rows, np.uint64)
        for vertices, tier in zip((hot, cold), self.tiers, strict=True):
            places[vertices] = row_addresses(device, tier)
        self.places = device.to_device(places)
        scale = rows.format.scale if isinstance(rows.format, Int8) else None
        self._scale = None if scale is None else device.to_device(scale)

    @property
    def nbytes(self) -> int:
        """Bytes of both tiers and of the table that leads to the rows."""
        return sum(int(tier.nbytes) for tier in self.tiers) + int(self.places.nbytes)

    def gather(self, source: FeatureSource | None, vertices: Any, out: Any, at: Any) -> int:
        """Let the device read each row from where it lies."""
        self._kernels.gather_rows_at(self.places, vertices, self._dim, self._kind, self._scale, out=out, at=at)
        return 0

    def missing(self, vertices: Any) -> NDArray[Any]:
        """No vertex: every row has an address."""
        return np.empty(0, np.int64)

    def vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows lie on the device."""
        hot = self.tiers[0]
        places, first = self._kernels.on_host(self.places), np.uint64(self._kernels.device.address(hot))
        return np.flatnonzero((places >= first) & (places < first + np.uint64(hot.nbytes)))

    def kept(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The vertices whose rows lie on the device, and these rows."""
        return self.vertices(), self._kernels.on_host(self.tiers[0])


def _dense(rows: Any) -> NDArray[Any]:
    dense: NDArray[Any] = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    return dense


def _format(rows: NDArray[Any], dtype: str | None) -> RowFormat:
    if dtype is None:
        kept = rows.dtype if rows.dtype.name in ("float32", "float16") else np.dtype(np.float32)
        return AsStored(kept)
    is_scaled = str(dtype) == "int8"  # whatever it is: what is no name is refused below
    largest = np.abs(rows).max(axis=0, initial=0) if is_scaled else None
    return format_for(dtype, largest)
