"""Rows on their way to a device: addresses, memory that the host fills, and rows of a bulk that were gathered once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.backends import get_backend
from spsample.common.locks import renewed
from spsample.errors import DTypeError
from spsample.features.gathering import require_places
from spsample.store.validation import validate_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels
    from spsample.backends.cuda.device import Device
    from spsample.features.source import FeatureSource


def row_addresses(device: Device, rows: Any) -> NDArray[np.uint64]:
    """(rows,) the address of each row of an array that a device reads, shape (rows, numbers), C order."""
    row_bytes = np.uint64(rows.itemsize * rows.shape[1])
    return np.uint64(device.address(rows)) + np.arange(rows.shape[0], dtype=np.uint64) * row_bytes


def device_ids(kernels: CudaKernels, ids: Any, count: int, argument: str) -> Any:
    """Return ids below `count` on the device; those that are there already are not looked at."""
    return kernels.to_device(ids if kernels.device.owns(ids) else validate_ids(ids, count, argument=argument))


def device_arguments(kernels: CudaKernels, source: FeatureSource, ids: Any, out: Any, at: Any) -> tuple[Any, Any, Any]:
    """Check what `gather` of a source on a device was called with, and return what its `_read` takes.

    Raises
    ------
    InputError, DTypeError
        If `out` is no float32 array on the device, of rows of `dim` numbers; or has not a row for each id, without
        `at`; or `at` has not one place in `out` for each.
    """
    with kernels.session():
        vertices = device_ids(kernels, ids, source.num_rows, "ids")
        if out is not None and not (kernels.device.owns(out) and out.dtype == np.float32):
            raise DTypeError(argument="out", given=type(out).__name__, expected="a float32 array on the device")
        count, dim = len(vertices), source.dim
        places = require_places(out, at, count, dim, lambda: device_ids(kernels, at, len(out), "at"))
        places = None if places is None else places.astype(np.int64, copy=False)
        return vertices, kernels.device.empty((count, dim), np.float32) if out is None else out, places


class _PinnedRows(NamedTuple):
    """Pinned memory, as the host writes to it and as kernels read it; addresses of its rows, and its last readers."""

    host: NDArray[Any]
    read: Any
    addresses: Any
    readers: Any


class StagedRows:
    """Pinned memory for rows of one kind: a piece for each thread that has some under way, a quarter larger than asked.

    A kernel reads the rows straight from there, so they cross the bus once and take no memory of the device. A piece is
    written to again once the kernels that read it are done; no thread waits for them before.

    Parameters
    ----------
    device : Device
    dim : int
        Numbers of a row.
    dtype : numpy.dtype
    """

    def __init__(self, device: Device, dim: int, dtype: np.dtype[Any]) -> None:
        self._device, self._dim, self._dtype = device, dim, dtype
        self._idle: list[_PinnedRows] = []
        self._taking = renewed(Lock())

    @contextmanager
    def rows(self, count: int) -> Iterator[tuple[NDArray[Any], Any]]:
        """Memory for `count` rows, to write to, and the address of each on the device: for kernels launched within."""
        piece = self._taken(count)
        try:
            yield piece.host[:count], piece.addresses[:count]
        finally:
            given_back = piece._replace(readers=self._device.ready())
            with self._taking:
                self._idle.append(given_back)

    def _taken(self, count: int) -> _PinnedRows:
        with self._taking:
            piece = self._idle.pop() if self._idle else None
        if piece is not None:
            self._device.finish(piece.readers)
            if len(piece.host) >= count:
                return piece
        host, read = self._device.pinned_empty((count + count // 4, self._dim), self._dtype)
        return _PinnedRows(host, read, self._device.to_device(row_addresses(self._device, read)), None)


class StagedFetch:
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
