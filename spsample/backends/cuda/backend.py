"""The backend `cuda`: the kernels of `kernels/cuda`, equal bit for bit to the other backends."""

from __future__ import annotations

from spsample.backends.cuda.compaction import Compactions
from spsample.backends.cuda.drawing import ColumnDraws
from spsample.backends.cuda.entry_law import EntryDraws
from spsample.backends.cuda.rows import UniformRows


class CudaKernels(UniformRows, Compactions, ColumnDraws, EntryDraws):
    """All parts, on one device."""

    name = "cuda"
