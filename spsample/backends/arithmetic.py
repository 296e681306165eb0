"""Parts that the backends share: the floating-point environment, values by parts, and the errors of what runs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from importlib import import_module
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from spsample.backends.protocol import (
    Backend,
    ColumnSample,
    ExtractedLayer,
    FloatArray,
    Int64Array,
    IntArray,
    Matrix,
    QuantisationRule,
    StackedRows,
    StackedSelector,
    UInt64Array,
    UnbiasedExtraction,
)
from spsample.errors import CapacityError

_P = ParamSpec("_P")
_R = TypeVar("_R")


@cache
def _environment() -> Callable[[], AbstractContextManager[object]]:
    """The compiled core's, imported on first use: `import spsample` alone does not load it."""
    try:
        make: Callable[[], AbstractContextManager[object]] = import_module("spsample._core").default_float_environment
    except ImportError:  # not built: the reference backend serves
        return nullcontext
    return make


class default_float_environment:  # noqa: N801, as contextlib's own
    """Compute as IEEE 754 says by default: round to nearest, keep subnormal numbers. Also a decorator.

    The calling thread may have been told otherwise (``torch.set_flush_denormal(True)``), which would change what NumPy
    computes from very small weights. Threads of the compiled core do the same for themselves. NumPy alone cannot set
    the environment: without the compiled core this does nothing.

    Examples
    --------
    >>> with default_float_environment():
    ...     5e-324 * 1.0
    5e-324
    """

    def __enter__(self) -> None:
        self._context = _environment()()
        self._context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.__exit__(kind, error, trace)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Decorate `function`. Its calls may overlap, so each has a context of its own."""

        @wraps(function)
        def computed(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with _environment()():
                return function(*args, **kwargs)

        return computed


def numerators_of(kernels: Backend, layer: ExtractedLayer, numerators: UInt64Array | QuantisationRule) -> UInt64Array:
    """N of every src column: as given, or read off the extraction by a rule."""
    if not isinstance(numerators, QuantisationRule):
        return numerators
    return kernels.extracted_numerators(layer.A, layer.Q, layer.rows, layer.sources.src_ptr, numerators)


def unbiased_values_by_parts(
    kernels: Backend, layer: ExtractedLayer, numerators: UInt64Array | QuantisationRule, size: int, normalize: bool
) -> FloatArray:
    """`Backend.unbiased_values`, composed of the backend's other kernels."""
    N, drawn = numerators_of(kernels, layer, numerators), (layer.sample, layer.sources, layer.num_targets)
    c = kernels.replacement_weights(*drawn, N, size) if size else kernels.des_raj_weights(*drawn, N)
    return kernels.entry_values(layer.A, layer.Q, layer.rows, layer.sources.src_ptr, c, normalize)


def extract_unbiased_by_parts(
    kernels: Backend,
    A: Matrix,
    Q: StackedSelector,
    sample: ColumnSample,
    numerators: UInt64Array | QuantisationRule,
    how: UnbiasedExtraction,
) -> tuple[Int64Array, IntArray, StackedRows, FloatArray]:
    """`Backend.extract_unbiased`, composed of the backend's other kernels."""
    columns = sample.columns.astype(A.indices.dtype)  # a copy: they are numbered in place
    sources = kernels.compact(Q, sample.indptr, columns, how.include_targets, len(A.indptr) - 1)
    rows = kernels.extract(A, Q, sources.src_ptr, sources.src, how.positions)
    if not isinstance(numerators, QuantisationRule):
        numerators = kernels.shared_numerators(numerators, sources.src)
    layer = ExtractedLayer(A, Q, rows, sample, sources, how.include_targets)
    values = kernels.unbiased_values(layer, numerators, how.size, how.normalize)
    return sources.src_ptr, sources.src, rows, values


def coordinates_by_parts(
    kernels: Backend, matrices: Sequence[tuple[Int64Array, IntArray]], ids: IntArray
) -> tuple[list[Int64Array], Int64Array]:
    """`Backend.coordinates`, composed of the backend's other kernels."""
    return [kernels.edge_index(*matrix) for matrix in matrices], kernels.widened(ids)


def scale_error(factor: float) -> CapacityError:
    """The error of a weight that is not finite once it is scaled."""
    return CapacityError(
        argument="factor",
        given=f"{factor}, by which a weight of the graph becomes larger than its type holds",
        expected="a smaller factor, or smaller weights",
    )


def overflow_error(A: Matrix, rows: StackedRows, values: FloatArray, entry: int) -> CapacityError:
    """The error of an `entry_values` whose `entry` is the first that is not finite."""
    if A.data is None or rows.positions is None:
        return value_error(values[entry], entry)
    position = int(rows.positions[entry])
    return value_error(values[entry], entry, (A.data[position], position))


def value_error(
    value: np.floating[Any], entry: int, weight: tuple[np.floating[Any], int] | None = None
) -> CapacityError:
    """The error of a value that is not finite, and of the weight (with its position) that it comes from, if any."""
    origin = "" if weight is None else f" from the weight {weight[0]!s} (entry {weight[1]} of the matrix)"
    return CapacityError(
        argument="data",
        given=f"the value {value} at sampled entry {entry}{origin}",
        expected=f"values that {value.dtype} can hold, and row sums that float64 can",
        hint="Scale the weights.",
    )


def draw_limit_error() -> CapacityError:
    """The error of a row that would need a draw number that the counter has not (law, section 1)."""
    return CapacityError(
        argument="size",
        given="rounds of 4 size draws that would pass the last draw number",
        expected="draw numbers below 2**34 (2**33 where the row's total exceeds 2**32)",
        hint="Use a smaller size.",
    )
