"""Rows of features, gathered from wherever they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.backends.cuda.device import DeviceArray, Kernel
from spsample.backends.cuda.launcher import KernelLauncher, index_variant
from spsample.backends.cuda.sources import Variant

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUADS = Kernel("features", "gather_quads", lanes=8)
QUAD_BYTES = 16
FIND_KEPT = Kernel("features", "find_kept")
TAKE_MISSING = Kernel("features", "take_missing")


class DeviceRows(NamedTuple):
    """Places of the rows of some ids among those that are kept on the device.

    Attributes
    ----------
    addresses : uint64 device array (ids,)
        Of each row; 0: it is not kept.
    missing : integer array (missing,)
        The ids whose rows are not kept, in order, on the host.
    positions : int64 device array (missing,)
        Their positions among the ids.
    """

    addresses: DeviceArray
    missing: NDArray[Any]
    positions: DeviceArray


class FeatureKernels(KernelLauncher):
    """`gather_rows_at` and `find_kept`: not part of the protocol, as only a device reads memory by address."""

    def gather_rows_at(
        self,
        places: DeviceArray,
        ids: DeviceArray | None,
        dim: int,
        form: str,
        scale: DeviceArray | None = None,
        *,
        out: DeviceArray | None = None,
        at: DeviceArray | None = None,
    ) -> DeviceArray:
        """The rows of vertices as float32, shape (len(ids), dim): a new array, or `out`.

        Parameters
        ----------
        places : uint64 device array (vertices,)
            The address of each vertex's row; multiples of 16 where it has a multiple of 4 numbers of float32. 0: it has
            none, and `out` stays as it is there.
        ids : int32 or int64 device array, optional
            Below the number of vertices. None: all of `places`, in order.
        form : str
            "float32", "float16", "bfloat16" or "int8": of the numbers of a row.
        scale : float32 device array (dim,)
            Of each column, for "int8".
        out : float32 device array (places, dim), optional
            Where rows go.
        at : int64 device array (len(ids),), optional
            The row of `out` for each id; None: one after the other.
        """
        count = len(places if ids is None else ids)
        out = self.device.empty((count, dim), np.float32) if out is None else out
        kernel = Kernel("features", f"gather_{form}", lanes=32)
        if form == "float32" and 4 * dim % QUAD_BYTES == 0 and self.device.address(out) % QUAD_BYTES == 0:
            kernel = QUADS
        arguments: tuple[Any, ...] = (places, ids, count, dim, out, at, scale)
        self.run(kernel, count if dim else 0, *arguments, variant=Variant() if ids is None else index_variant(ids))
        return out

    def find_kept(self, words: DeviceArray, ids: DeviceArray, rows: DeviceArray) -> DeviceRows:
        """Split ids into those whose rows are kept on the device and the others. Waits twice.

        Parameters
        ----------
        words : uint64 device array
            Which vertices have a row, of `spsample.features.places.RowPlaces`.
        ids : int32 or int64 device array
            Below the number of vertices.
        rows : device array (kept, dim)
            In the order of the vertices.
        """
        device, count, variant = self.device, len(ids), index_variant(ids)
        addresses, is_missing = device.empty(count, np.uint64), device.empty(count, np.uint8)
        ends, positions = device.empty(count, np.int64), device.empty(count, np.int64)
        missing = device.empty(count, ids.dtype)
        row_bytes = rows.itemsize * rows.shape[1]
        self.run(FIND_KEPT, count, words, ids, count, rows, row_bytes, addresses, is_missing, variant=variant)
        device.cumsum(is_missing, ends)
        self.run(TAKE_MISSING, count, ids, count, ends, missing, positions, variant=variant)
        last = int(device.to_host(ends[count - 1 :])[0]) if count else 0
        return DeviceRows(addresses, device.to_host(missing[:last]), positions[:last])
