"""Backends: the same kernels as plain NumPy (`reference`), C++ (`cpu`) and CUDA (`cuda`), equal bit for bit."""

from __future__ import annotations

from spsample.backends.protocol import (
    Backend,
    ColumnMatrix,
    ColumnSample,
    ColumnScale,
    Compaction,
    Draw,
    ExtractedLayer,
    GatheredRows,
    Matrix,
    PartialSums,
    QuantisationRule,
    RoutedRows,
    StackedRows,
    StackedSelector,
    UnbiasedExtraction,
    UnitedHops,
)
from spsample.backends.registry import available_backends, backend_for, get_backend

__all__ = [
    "Backend",
    "ColumnMatrix",
    "ColumnSample",
    "ColumnScale",
    "Compaction",
    "Draw",
    "ExtractedLayer",
    "GatheredRows",
    "Matrix",
    "PartialSums",
    "QuantisationRule",
    "RoutedRows",
    "StackedRows",
    "StackedSelector",
    "UnbiasedExtraction",
    "UnitedHops",
    "available_backends",
    "backend_for",
    "get_backend",
]
