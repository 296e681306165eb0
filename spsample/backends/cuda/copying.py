"""The backend `cuda` for callers whose arrays are NumPy's: a distributed graph, whose exchanges go over the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import numpy as np

from spsample.backends.on_host import OnHost
from spsample.backends.protocol import PER_BATCH, PER_GRAPH, Backend
from spsample.backends.reference import values

if TYPE_CHECKING:
    from spsample.backends.cuda.backend import CudaKernels


class CopyingBackend(OnHost):
    """Arguments are copied to the device, and results back. A graph's own arrays are copied once and kept there.

    The protocol's annotations say what is copied how: `PerBatch` stays on the host, `PerGraph` is kept on the device.

    Equal bit for bit to the other backends, and slower than the kernels by the copies: about twice the bytes of a
    bulk's arrays over the bus.
    """

    def __init__(self, kernels: CudaKernels) -> None:
        self._kernels = kernels
        self.name = kernels.name
        for method, function in vars(Backend).items():
            if callable(function) and not method.startswith("_") and not hasattr(type(self), method):
                setattr(self, method, self._copying(method))

    def own_weights(self, A: Any, Q: Any, rows: Any) -> Any:
        """A_iv of drawn entries, gathered on the host, where the rows are."""
        return values.own_weights(A, Q, rows)

    def _copying(self, name: str) -> Callable[..., Any]:
        parameters = marks(getattr(Backend, name))

        def call(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(parameters, args, strict=False)), **kwargs}
            with self._kernels.session():
                copied = {key: self._copied(value, parameters[key]) for key, value in given.items()}
                return self._returned(getattr(self._kernels, name)(**copied))

        return call

    def _copied(self, value: Any, mark: str) -> Any:
        """The value of a parameter or a field with the mark, its arrays where the kernels take them."""
        if mark == PER_BATCH:
            return value
        if isinstance(value, np.ndarray):
            return self._kernels.uploaded(value) if mark == PER_GRAPH else self._kernels.to_device(value)
        if _is_named(value):
            fields = marks_of_fields(value)
            return type(value)(*(self._copied(getattr(value, field), fields[field]) for field in value._fields))
        if isinstance(value, (tuple, list)):
            return type(value)(self._copied(part, mark) for part in value)
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
    return cast("Backend", CopyingBackend(kernels))


@cache
def marks(annotated: Any) -> dict[str, str]:
    """Mark of each parameter of a method of the protocol, or of each field of one of its tuples; empty without one.

    Examples
    --------
    >>> from spsample.backends import StackedSelector
    >>> marks(StackedSelector)["batch_ptr"], marks(StackedSelector)["vertices"]
    ('an element per batch', '')
    """
    hints = get_type_hints(annotated, include_extras=True)
    return {name: getattr(hint, "__metadata__", ("",))[0] for name, hint in hints.items() if name != "return"}


def marks_of_fields(value: Any) -> dict[str, str]:
    """Marks of the fields of a tuple of the protocol, or of a class derived from one."""
    kind: Any = type(value)
    return marks(kind)


def per_batch_fields(value: Any) -> set[str]:
    """Fields of a tuple of the protocol, or of a class derived from one, that are on the host in every backend."""
    return {field for field, mark in marks_of_fields(value).items() if mark == PER_BATCH}


def _is_named(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")
