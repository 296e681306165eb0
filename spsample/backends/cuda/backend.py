"""The backend `cuda`: the kernels of `kernels/cuda`, equal bit for bit to the other backends."""

from __future__ import annotations

from spsample.backends.cuda.compaction import Compactions
from spsample.backends.cuda.extraction import Extractions
from spsample.backends.cuda.forms import Forms
from spsample.backends.cuda.random import RandomBits
from spsample.backends.cuda.routing import Routing
from spsample.backends.cuda.rows import UniformRows
from spsample.backends.cuda.source_weights import SourceWeights
from spsample.backends.cuda.totals import Totals
from spsample.backends.cuda.values import Values


class CudaKernels(UniformRows, Compactions, Extractions, Values, SourceWeights, Totals, Forms, Routing, RandomBits):
    """All parts, on one device."""

    name = "cuda"
