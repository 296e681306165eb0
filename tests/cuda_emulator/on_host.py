"""A device backend as one of NumPy arrays, for tests that are written for all backends."""

from __future__ import annotations

from functools import wraps

import numpy as np

from spsample.backends import protocol

ON_HOST = {
    "StackedSelector": {"batch_ptr", "batch_ids"},
    "StackedRows": {"batch_ptr", "entry_ptr"},
    "Compaction": {"src_ptr"},
    "ColumnMatrix": {"indptr", "totals"},
    "ColumnSample": {"indptr", "totals", "whole"},
    "Numerators": {"shifts"},
    "RoutedRows": {"counts"},
    "GatheredRows": {"entry_ptr"},
}
"""Fields with an element per batch: on the host in every backend."""

PER_BATCH = {
    "shifts", "batch_ids", "batch_ptr", "src_ptr", "num_targets", "pointers", "found_ptr", "known_ptr", "bounds",
}  # fmt: skip
"""Parameters of that kind."""


class OnHost:
    """Arguments are copied to the device where they belong there, and results back; checks where results are."""

    def __init__(self, backend):
        self._backend = backend
        self.name = backend.name

    def __getattr__(self, name):
        method = getattr(self._backend, name)
        names = (
            method.__code__.co_varnames[1:] if hasattr(method, "__code__") else method.__func__.__code__.co_varnames[1:]
        )

        @wraps(method)
        def call(*args, **kwargs):
            placed = [self._placed(value, name in PER_BATCH) for name, value in zip(names, args, strict=False)]
            named = {name: self._placed(value, name in PER_BATCH) for name, value in kwargs.items()}
            return self._returned(method(*placed, **named))

        return call

    def _placed(self, value, on_host=False):
        if isinstance(value, np.ndarray):
            return value if on_host else self._backend.device.to_device(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            kept = ON_HOST.get(type(value).__mro__[0].__name__, set())
            kept = kept or next((ON_HOST[c.__name__] for c in type(value).__mro__ if c.__name__ in ON_HOST), set())
            return type(value)(*(self._placed(v, f in kept) for f, v in zip(value._fields, value, strict=True)))
        if isinstance(value, (tuple, list)):
            return type(value)(self._placed(v, on_host) for v in value)
        return value

    def _returned(self, value):
        if self._backend.device.owns(value):
            return self._backend.device.to_host(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            kept = ON_HOST.get(type(value).__name__, set())
            for field, part in zip(value._fields, value, strict=True):
                if isinstance(part, np.ndarray):
                    assert field in kept, f"{type(value).__name__}.{field} is on the host"
                elif self._backend.device.owns(part):
                    assert field not in kept, f"{type(value).__name__}.{field} is on the device"
            return type(value)(*map(self._returned, value))
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._returned, value))
        return value


__all__ = ["OnHost", "protocol"]
