"""The backend `cuda` for callers whose arrays are NumPy's: a distributed graph, whose exchanges go over the host."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from spsample.backends.on_host import OnHost
from spsample.backends.protocol import Backend, Matrix
from spsample.backends.reference import values

if TYPE_CHECKING:
    from spsample.backends.cuda.backend import CudaKernels

PER_BATCH_FIELDS = {
    "StackedSelector": {"batch_ptr", "batch_ids"},
    "StackedRows": {"batch_ptr", "entry_ptr"},
    "Compaction": {"src_ptr"},
    "ColumnMatrix": {"indptr", "totals"},
    "ColumnSample": {"indptr", "totals", "whole"},
    "QuantisationRule": {"shifts"},
    "RoutedRows": {"counts"},
    "GatheredRows": {"entry_ptr"},
}
"""Fields of the protocol's tuples with an element per batch: on the host in every backend."""

KEPT_ARGUMENTS = {"cumulative", "guide", "rules"}
"""Parameters that belong to a graph: copied once."""

PER_BATCH_ARGUMENTS = {
    "batch_ids",
    "batch_ptr",
    "bounds",
    "found_ptr",
    "known_ptr",
    "num_targets",
    "pointers",
    "src_ptr",
}
"""Parameters of the protocol's methods of that kind."""


class StagedBackend(OnHost):
    """Arguments are copied to the device, and results back. A graph's own arrays are copied once and kept there.

    Equal bit for bit to the other backends, and slower than the kernels by the copies: about twice the bytes of a
    bulk's arrays over the bus.
    """

    def __init__(self, kernels: CudaKernels) -> None:
        self._kernels = kernels
        self.name = kernels.name
        for method, function in vars(Backend).items():
            if (
                callable(function)
                and not method.startswith("_")
                and method not in vars(OnHost)
                and method != "own_weights"
            ):
                setattr(self, method, self._staged(method, list(signature(function).parameters)[1:]))

    def own_weights(self, A: Any, Q: Any, rows: Any) -> Any:
        """A_iv of drawn entries, gathered on the host, where the rows are."""
        return values.own_weights(A, Q, rows)

    def _staged(self, name: str, parameters: list[str]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(parameters, args, strict=False)), **kwargs}
            with self._kernels.session():
                placed = {key: self._placed(value, key) for key, value in given.items()}
                return self._returned(getattr(self._kernels, name)(**placed))

        return call

    def _placed(self, value: Any, parameter: str = "") -> Any:
        kept = self._kernels.uploaded
        if isinstance(value, np.ndarray):
            if parameter in PER_BATCH_ARGUMENTS:
                return value
            return kept(value) if parameter in KEPT_ARGUMENTS else self._kernels.placed(value)
        if isinstance(value, Matrix):
            parts: list[Any] = [kept(part) if isinstance(part, np.ndarray) else part for part in value]
            return Matrix(*parts)
        if _is_named(value):
            on_host = per_batch_fields(value)
            named = zip(value._fields, value, strict=True)
            return type(value)(*(part if name in on_host else self._placed(part) for name, part in named))
        if isinstance(value, (tuple, list)):
            return type(value)(self._placed(part, parameter) for part in value)
        return value

    def _returned(self, value: Any) -> Any:
        if self._kernels.device.owns(value):
            return self._kernels.device.to_host(value)
        if _is_named(value):
            return type(value)(*map(self._returned, value))
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._returned, value))
        return value


def on_host_arrays(backend: Backend) -> Backend:
    """The backend for callers with NumPy arrays: itself, or `cuda` with copies to the device and back.

    Examples
    --------
    >>> from spsample.backends import get_backend
    >>> on_host_arrays(get_backend("reference")).name
    'reference'
    """
    if backend.name != "cuda":
        return backend
    kernels: Any = backend
    return cast("Backend", StagedBackend(kernels))


def per_batch_fields(value: Any) -> set[str]:
    """Fields of a tuple of the protocol, or of a class derived from one, that are on the host in every backend."""
    known = (PER_BATCH_FIELDS.get(kind.__name__) for kind in type(value).__mro__)
    return next((fields for fields in known if fields is not None), set())


def _is_named(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


__all__ = ["StagedBackend", "on_host_arrays", "per_batch_fields"]
