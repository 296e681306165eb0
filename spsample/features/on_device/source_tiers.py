"""Hot rows of a feature source on a device; the others the source gathers, in the memory of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import collective
from spsample.comm.objects import comm_of
from spsample.errors import InputError
from spsample.features.caching.cached_rows import parts_to_read, stored_dtype
from spsample.features.on_device.staged_rows import StagedRows
from spsample.features.places import RowPlaces, place_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels
    from spsample.features.protocol import FeatureSource

__all__ = ["SourceRows", "SourceTiers"]

_FORMS = ("float32", "float16", "int8")
"""Types of numbers that kernels read as they are; others come as float32."""


class SourceRows:
    """The rows of a feature source; see `Placeable`.

    Parameters
    ----------
    source : FeatureSource
        In the memory of the host.
    dtype : None
        Refused: rows are kept as the source stores them.

    Raises
    ------
    InputError
    """

    def __init__(self, source: FeatureSource, dtype: str | None) -> None:
        if getattr(source, "on_device", False):
            given, expected = f"{type(source).__name__}, whose rows are on a device", "a source in the host's memory"
            raise InputError(argument="x", given=given, expected=expected)
        if dtype is not None:
            raise InputError(
                argument="dtype",
                given=f"{dtype!r} with a {type(source).__name__}",
                expected="None: rows are kept as the source stores them",
                hint="Give DeviceFeatures an array, or store the rows in that form.",
            )
        self.source, self.num_rows, self.dim = source, source.num_rows, source.dim
        kept = stored_dtype(source)
        self.dtype = kept if kept.name in _FORMS else np.dtype(np.float32)
        self.row_bytes = self.dtype.itemsize * self.dim
        self.map_bytes = place_bytes(self.num_rows)

    def placed(self, kernels: CudaKernels, hot: NDArray[np.int64]) -> SourceTiers:
        """Read the rows of the vertices `hot`, and copy them to the device."""
        return SourceTiers(self, kernels, hot)


class SourceTiers:
    """Rows of some vertices on a device, with a map of 2 bits a vertex beside them; see `Tiers`.

    The device finds which ids have a row there, and says which have none. While it gathers the rows that it has, the
    source gathers the others into pinned memory, in the type in which they are stored. A second kernel reads them from
    there and puts them between the first ones.
    """

    def __init__(self, rows: SourceRows, kernels: CudaKernels, hot: NDArray[np.int64]) -> None:
        source, device = rows.source, kernels.device
        self.form, self.row_bytes, self._dim = f"{rows.dtype}, as stored", rows.row_bytes, rows.dim
        self._kernels, self._vertices = kernels, hot
        with collective(comm_of(source), call="memory for features on a device"):
            self._rows = device.empty((len(hot), rows.dim), rows.dtype)
            self._words = device.to_device(RowPlaces(hot, rows.num_rows).words)
            self._scale = device.full(rows.dim, 1.0, np.float32) if rows.dtype == np.int8 else None
            self._staged = StagedRows(device, rows.dim, rows.dtype)
        for part in parts_to_read(source, len(hot)):
            read = np.empty((len(hot[part]), rows.dim), rows.dtype)
            source.gather(hot[part], read)
            if read.size:
                self._rows[part] = device.to_device(read)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of the map, on the device."""
        return int(self._rows.nbytes) + int(self._words.nbytes)

    def gather(self, source: FeatureSource | None, vertices: Any, out: Any, at: Any) -> int:
        """Gather on the device what is there, and on the host what is not; collective where the source is."""
        found = self._kernels.find_kept(self._words, vertices, self._rows)
        self._write(found.addresses, out, at)
        misses = len(found.missing)
        if source is not None and (misses or comm_of(source).size > 1):
            with self._staged.rows(misses) as (rows, addresses):
                source.gather(found.missing, rows)
                self._write(addresses, out, found.positions if at is None else at[found.positions])
        return misses

    def missing(self, vertices: Any) -> NDArray[Any]:
        """The vertices whose rows are not on the device."""
        return self._kernels.find_kept(self._words, vertices, self._rows).missing

    def vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows lie on the device."""
        return self._vertices

    def kept(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The vertices whose rows lie on the device, and these rows."""
        return self.vertices(), self._kernels.on_host(self._rows)

    def _write(self, addresses: Any, out: Any, at: Any) -> None:
        form = self._rows.dtype.name
        self._kernels.gather_rows_at(addresses, None, self._dim, form, self._scale, out=out, at=at)
