"""The sparse algebra of sampling: Q A, NORM, SAMPLE, EXTRACT, on matrices stacked over k minibatches."""

from __future__ import annotations

from spsample.backends import Draw
from spsample.backends.on_host import row_lengths
from spsample.common.threads import clear_pool, get_num_threads, measured_pool, pool_bytes, set_num_threads
from spsample.sparse.algebra import (
    column_norms,
    extract,
    its_sample,
    normalize_rows,
    pattern,
    square,
)
from spsample.sparse.csr import CSRMatrix, select_rows, spgemm
from spsample.sparse.extraction import ExtractOptions, ReferenceWeights, StackedLayer, UnbiasedWeights
from spsample.sparse.keys import LAW_VERSION, derive_key, shuffle
from spsample.sparse.layer_law import LayerSample
from spsample.sparse.local import LocalOperand
from spsample.sparse.operand import Entries, Frontier, GraphOperand, RowStatistics
from spsample.sparse.probability_matrix import ProbabilityMatrix
from spsample.sparse.row_law import RowSample
from spsample.sparse.scaled_columns import ScaledOperand
from spsample.sparse.selector import BatchSelector, RowSelector, split, stack

__all__ = [
    "LAW_VERSION",
    "BatchSelector",
    "CSRMatrix",
    "Draw",
    "Entries",
    "ExtractOptions",
    "Frontier",
    "GraphOperand",
    "LayerSample",
    "LocalOperand",
    "ProbabilityMatrix",
    "ReferenceWeights",
    "RowSample",
    "RowSelector",
    "RowStatistics",
    "ScaledOperand",
    "StackedLayer",
    "UnbiasedWeights",
    "clear_pool",
    "column_norms",
    "derive_key",
    "extract",
    "get_num_threads",
    "its_sample",
    "measured_pool",
    "normalize_rows",
    "pattern",
    "pool_bytes",
    "row_lengths",
    "select_rows",
    "set_num_threads",
    "shuffle",
    "spgemm",
    "split",
    "square",
    "stack",
]
