"""Rows on their way to a device: memory that the host fills and kernels read over the bus, used again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.common.locks import renewed
from spsample.features.on_device.addresses import row_addresses

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.backends.cuda.device import Device

__all__ = ["StagedRows"]


class _Piece(NamedTuple):
    """Pinned memory: as the host writes to it, as kernels read it, the address of each row, and who read it last."""

    host: NDArray[Any]
    read: Any
    addresses: Any
    readers: Any


class StagedRows:
    """Pinned memory for rows of one kind: a piece for each thread that has some under way, a quarter larger than asked.

    A kernel reads the rows straight from there, so they cross the bus once and take no memory of the device. A piece is
    written to again once the kernels that read it are done; nobody waits for them before.

    Parameters
    ----------
    device : Device
    dim : int
        Numbers of a row.
    dtype : numpy.dtype
    """

    def __init__(self, device: Device, dim: int, dtype: np.dtype[Any]) -> None:
        self._device, self._dim, self._dtype = device, dim, dtype
        self._idle: list[_Piece] = []
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

    def _taken(self, count: int) -> _Piece:
        with self._taking:
            piece = self._idle.pop() if self._idle else None
        if piece is not None:
            self._device.finish(piece.readers)
            if len(piece.host) >= count:
                return piece
        host, read = self._device.pinned_empty((count + count // 4, self._dim), self._dtype)
        return _Piece(host, read, self._device.to_device(row_addresses(self._device, read)), None)
