"""Rows that a device gathers: hot ones in its memory, the others where it reads them, or behind a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from spsample.comm import collective
from spsample.errors import InputError
from spsample.features.device_staging import StagedRows, row_addresses
from spsample.features.formats import AsStored, RowFormat, as_rows, format_for
from spsample.features.keeper import parts_to_read, require_host_source
from spsample.features.slot_map import slot_map_bytes, slot_words
from spsample.features.source import FeatureSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels

_SOURCE_FORMS = ("float32", "float16", "int8")
"""Types of numbers that kernels read as they are; others come as float32."""


class _Nowhere(FeatureSource):
    """The fallback of an array, which is never asked: the device reads all rows itself."""

    def __init__(self, num_rows: int, dim: int) -> None:
        self.num_rows, self.dim = num_rows, dim

    def _read(self, ids: NDArray[Any], out: Any, at: NDArray[np.int64] | None = None) -> None:
        raise NotImplementedError


class ArrayTiers:
    """An array: hot rows on a device, the others in pinned memory of the host, and the address of every row.

    One kernel reads both, so a batch needs no second pass. All methods are called in a session of the kernels.

    Parameters
    ----------
    x
        Shape (vertices, features).
    dtype : str or None
        As of `DeviceFeatures`.

    Attributes
    ----------
    source : FeatureSource
        The fallback, which has the rows that the device cannot read.
    row_bytes, map_bytes : int
        Bytes of a hot row on the device, and of the map to the rows.
    form : str
        The form of the numbers of a row, in words.
    """

    def __init__(self, x: Any, dtype: str | None) -> None:
        x = as_rows(x)
        rows: NDArray[Any] = x.toarray() if sparse.issparse(x) else np.asarray(x)
        self._format = _format(rows, dtype)
        self._encoded: Any = self._format.encode(rows)
        self.source = _Nowhere(*rows.shape)
        self.row_bytes, self.map_bytes = int(self._encoded.itemsize * rows.shape[1]), 8 * len(rows)
        self.form = self._format.name

    def place(self, kernels: CudaKernels, hot: NDArray[np.int64]) -> None:
        """Copy all rows, those of the vertices `hot` to the device."""
        device, encoded = kernels.device, self._encoded
        self._kernels, self._kind = kernels, "bfloat16" if encoded.dtype == np.uint16 else encoded.dtype.name
        is_hot = np.zeros(len(encoded), np.bool_)
        is_hot[hot] = True
        cold = np.flatnonzero(~is_hot)
        self.tiers = device.to_device(encoded[hot]), device.pinned(encoded[cold])
        places = np.zeros(len(encoded), np.uint64)
        for vertices, tier in zip((hot, cold), self.tiers, strict=True):
            places[vertices] = row_addresses(device, tier)
        self.places = device.to_device(places)
        self._scale = None if self._format.scale is None else device.to_device(self._format.scale)
        self._encoded = None

    @property
    def nbytes(self) -> int:
        """Bytes of both tiers and of the table that leads to the rows."""
        return sum(int(tier.nbytes) for tier in self.tiers) + int(self.places.nbytes)

    def gather(self, source: FeatureSource, vertices: Any, out: Any, at: Any) -> int:
        """Write rows of vertices to rows `at` of `out`, each from where it lies; return how many the source gave."""
        self._kernels.gather_rows_at(self.places, vertices, self.source.dim, self._kind, self._scale, out=out, at=at)
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


class SourceTiers:
    """A source: hot rows on a device, with a map of 2 bits a vertex beside them.

    The device finds which ids have a row there, and says which have none. While it gathers the rows that it has, the
    source gathers the others into pinned memory, in the type in which they are stored. A second kernel reads them from
    there and puts them between the first ones.

    Parameters
    ----------
    source : FeatureSource
        In the memory of the host.
    dtype : None
        Refused: rows are kept as the source stores them.

    Attributes
    ----------
    source, row_bytes, map_bytes, form
        As of `ArrayTiers`.

    Raises
    ------
    InputError
    """

    def __init__(self, source: FeatureSource, dtype: str | None) -> None:
        require_host_source("x", source, "DeviceFeatures")
        if dtype is not None:
            raise InputError(
                argument="dtype",
                given=f"{dtype!r} with a {type(source).__name__}",
                expected="None: rows are kept as the source stores them",
                hint="Give DeviceFeatures an array, or store the rows in that form.",
            )
        self.source = source
        self.dtype = source.stored_dtype if source.stored_dtype.name in _SOURCE_FORMS else np.dtype(np.float32)
        self.form, self.row_bytes = f"{self.dtype}, as stored", self.dtype.itemsize * source.dim
        self.map_bytes = slot_map_bytes(source.num_rows)

    def place(self, kernels: CudaKernels, hot: NDArray[np.int64]) -> None:
        """Read the rows of the vertices `hot`, ascending, and copy them to the device; collective as the source is."""
        source, device = self.source, kernels.device
        self._kernels, self._vertices = kernels, hot
        with collective(source.comm, call="memory for features on a device"):
            self._rows = device.empty((len(hot), source.dim), self.dtype)
            self._words = device.to_device(slot_words(hot, source.num_rows))
            self._scale = device.full(source.dim, 1.0, np.float32) if self.dtype == np.int8 else None
            self._staged = StagedRows(device, source.dim, self.dtype)
        for piece in parts_to_read(source, len(hot)):
            read = np.empty((len(hot[piece]), source.dim), self.dtype)
            source.gather(hot[piece], read)
            if read.size:
                self._rows[piece] = device.to_device(read)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of the map, on the device."""
        return int(self._rows.nbytes) + int(self._words.nbytes)

    def gather(self, source: FeatureSource, vertices: Any, out: Any, at: Any) -> int:
        """Gather on the device what is there, and on the host what is not; collective where the source is."""
        split = self._kernels.find_kept(self._words, vertices, self._rows)
        self._write(split.addresses, out, at)
        misses = len(split.missing)
        if misses or source.comm.size > 1:
            with self._staged.rows(misses) as (rows, addresses):
                source.gather(split.missing, rows)
                self._write(addresses, out, split.positions if at is None else at[split.positions])
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
        form = self.dtype.name
        self._kernels.gather_rows_at(addresses, None, self.source.dim, form, self._scale, out=out, at=at)


Tiers = ArrayTiers | SourceTiers
"""Rows of which some are to lie on a device."""


def _format(rows: NDArray[Any], dtype: str | None) -> RowFormat:
    if dtype is None:
        kept = rows.dtype if rows.dtype.name in ("float32", "float16") else np.dtype(np.float32)
        return AsStored(kept)
    is_scaled = str(dtype) == "int8"  # format_for refuses what is no name
    largest = np.abs(rows).max(axis=0, initial=0) if is_scaled else None
    return format_for(dtype, largest)
