"""The backend `cuda`: the kernels of `kernels/cuda`, equal bit for bit to the other backends."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from spsample.backends.cuda.column_law import ColumnLawKernels
from spsample.backends.cuda.column_law_added import AddedColumnKernels
from spsample.backends.cuda.cupy_device import CupyDevice
from spsample.backends.cuda.entry_law import EntryLawKernels
from spsample.backends.cuda.extraction import ExtractionKernels
from spsample.backends.cuda.features import FeatureKernels
from spsample.backends.cuda.quantisation import QuantisationKernels
from spsample.backends.cuda.random import RandomKernels
from spsample.backends.cuda.routing import RoutingKernels
from spsample.backends.cuda.row_law_scaled import ScaledRowLawKernels
from spsample.backends.hops import hop_by_hop


class CudaKernels(
    RandomKernels,
    QuantisationKernels,
    EntryLawKernels,
    ColumnLawKernels,
    AddedColumnKernels,
    ExtractionKernels,
    ScaledRowLawKernels,
    RoutingKernels,
    FeatureKernels,
):
    """All operations, on one device."""

    name = "cuda"
    sample_hops = hop_by_hop

    def session(self) -> AbstractContextManager[Any]:
        """Around the calls of one bulk: they go to the caller's stream, that of torch where it is loaded."""
        return self.device.on_stream()

    def to_device(self, array: Any) -> Any:
        """The array on the device, to be read on the caller's stream: a copy, if it is not there yet."""
        with self.session():
            if self.device.owns(array):
                return self.device.use(array)
            return self.device.to_device(np.ascontiguousarray(array))

    def on_host(self, array: Any) -> Any:
        """The array as NumPy's: a copy of one on the device; waits for it."""
        if not self.device.owns(array):
            return array
        with self.session():
            return self.device.to_host(array)

    def copied(self, array: Any) -> Any:
        """A copy of the array on the device."""
        return self.to_device(array).copy()


class CudaBackend(CudaKernels):
    """The kernels on the GPU that is current when they are first asked for.

    Raises
    ------
    BackendError, MissingDependencyError
        If there is no GPU, or CuPy is missing.
    """

    def __init__(self) -> None:
        super().__init__(CupyDevice())
