"""The backend `cuda`: the kernels of `kernels/cuda`, equal bit for bit to the other backends."""

from __future__ import annotations

from spsample.backends.cuda.compaction import Compactions
from spsample.backends.cuda.rows import UniformRows
from spsample.backends.cuda.spgemm import Algebra
from spsample.backends.cuda.weighted_rows import WeightedRows


class CudaKernels(UniformRows, WeightedRows, Compactions, Algebra):
    """All parts, on one device."""

    name = "cuda"
