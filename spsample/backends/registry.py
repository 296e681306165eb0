"""Choosing a backend by name."""

from __future__ import annotations

import reprlib
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from spsample.backends.protocol import Backend
from spsample.errors import BackendError, DTypeError, InputError

_CLASSES = {
    "cpu": ("spsample.backends.cpu", "CpuBackend"),
    "reference": ("spsample.backends.reference", "ReferenceBackend"),
}


def available_backends() -> tuple[str, ...]:
    """Names of the backends that work here, fastest first.

    Examples
    --------
    >>> "reference" in available_backends()
    True
    """
    compiled = ("cpu",) if find_spec("spsample._core") is not None else ()
    return (*compiled, "reference")


def get_backend(name: str | None = None) -> Backend:
    """The backend called `name`; None is the fastest available one.

    Raises
    ------
    InputError, DTypeError
        If there is no backend of that name.
    BackendError
        If it exists but cannot be loaded here.

    Examples
    --------
    >>> get_backend("reference").name
    'reference'
    """
    if name is None:
        return _load(available_backends()[0])
    expected = f"one of {sorted(_CLASSES)}"
    if not isinstance(name, str):
        raise DTypeError(
            argument="backend", given=f"{reprlib.repr(name)} of type {type(name).__name__}", expected=expected
        )
    if name not in _CLASSES:
        raise InputError(argument="backend", given=reprlib.repr(name), expected=expected)
    return _load(name)


@cache
def _load(name: str) -> Backend:
    module, cls = _CLASSES[name]
    try:
        backend: Backend = getattr(import_module(module), cls)()
    except ImportError as error:
        raise BackendError(
            f"backend {name!r} cannot be loaded: {error}. "
            "Reinstall spsample with a C++ compiler present, or use backend='reference'."
        ) from error
    return backend
