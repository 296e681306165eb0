"""Rows of features, gathered from wherever they lie."""

from __future__ import annotations

from typing import Any

import numpy as np

from spsample.backends.cuda.device import DeviceArray, Kernel
from spsample.backends.cuda.launcher import KernelLauncher, index_variant

QUADS = Kernel("features", "gather_quads", lanes=8)
QUAD_BYTES = 16


class FeatureKernels(KernelLauncher):
    """`gather_rows_at`: not part of the protocol, as only a device reads memory by address."""

    def gather_rows_at(
        self,
        places: DeviceArray,
        ids: DeviceArray,
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
            The address of each vertex's row; multiples of 16 where it has a multiple of 4 numbers of float32.
        ids : int32 or int64 device array
            Below the number of vertices.
        form : str
            "float32", "float16", "bfloat16" or "int8": of the numbers of a row.
        scale : float32 device array (dim,)
            Of each column, for "int8".
        out : float32 device array (places, dim), optional
            Where rows go.
        at : int64 device array (len(ids),), optional
            The row of `out` for each id; None: one after the other.
        """
        out = self.device.empty((len(ids), dim), np.float32) if out is None else out
        kernel = Kernel("features", f"gather_{form}", lanes=32)
        if form == "float32" and 4 * dim % QUAD_BYTES == 0 and self.device.address(out) % QUAD_BYTES == 0:
            kernel = QUADS
        arguments: tuple[Any, ...] = (places, ids, len(ids), dim, out, at, scale)
        self.run(kernel, len(ids) if dim else 0, *arguments, variant=index_variant(ids))
        return out
