"""Choosing a backend by name."""

from __future__ import annotations

import reprlib
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np

from spsample.backends.protocol import Backend
from spsample.backends.tensors import Tensors, is_tensor
from spsample.errors import BackendError, DTypeError, InputError, MissingDependencyError

_CLASSES = {
    "cpu": ("spsample.backends.cpu", "CpuBackend"),
    "cuda": ("spsample.backends.cuda.backend", "CudaBackend"),
    "reference": ("spsample.backends.reference", "ReferenceBackend"),
}

_HINTS = {
    "cpu": "Reinstall spsample with a C++ compiler present, or use backend='reference'.",
    "cuda": "Install `spsample[gpu]`, or use backend='cpu'.",
}
_HINT = "Reinstall spsample, or use backend='reference'."


def available_backends() -> tuple[str, ...]:
    """Names of the backends that work here on arrays of the host, fastest first.

    The backend "cuda" is not among them: it works on a `spsample.DeviceGraph`.

    Examples
    --------
    >>> "reference" in available_backends()
    True
    """
    return ("cpu", "reference") if _has_core() else ("reference",)


@cache
def _has_core() -> bool:
    return find_spec("spsample._core") is not None


def get_backend(name: str | None = None) -> Backend:
    """The backend called `name`; None is the fastest available one.

    Raises
    ------
    InputError, DTypeError
        If there is no backend of that name.
    BackendError
        If it exists but cannot be loaded here.
    MissingDependencyError
        If a package that it needs is not installed.

    Examples
    --------
    >>> get_backend("reference").name
    'reference'
    """
    if name is None:
        fastest = available_backends()[0]
        if fastest == "reference":
            _warn_of_no_core()
        return _load(fastest)
    expected = f"one of {sorted(_CLASSES)}"
    if not isinstance(name, str):
        raise DTypeError(
            argument="backend", given=f"{reprlib.repr(name)} of type {type(name).__name__}", expected=expected
        )
    if name not in _CLASSES:
        raise InputError(argument="backend", given=reprlib.repr(name), expected=expected)
    return _load(name)


def backend_for(array: Any) -> Backend:
    """The backend whose kernels read an array: the fastest one of the host for NumPy's, else "cuda".

    For torch's tensors there are no kernels: what is returned converts them alone (`Tensors`).

    Examples
    --------
    >>> import numpy as np
    >>> backend_for(np.arange(3)).name in available_backends()
    True
    """
    if isinstance(array, np.ndarray):
        return get_backend()
    return cast("Backend", Tensors()) if is_tensor(array) else get_backend("cuda")


@cache
def _warn_of_no_core() -> None:
    """Say once that nothing compiled is found: samples are the same, but take some hundred times as long."""
    package = Path(__file__).parents[1]
    text = f"spsample has no compiled core in {package}: sampling runs in plain NumPy, some hundred times slower."
    if (package.parent / "pyproject.toml").exists():
        text += (
            " This is a folder of sources, which Python found before an installed spsample. Start Python in another"
            " folder, or install the sources in place: pip install -e ."
        )
    else:
        text += f" {_HINTS['cpu']}"
    warnings.warn(text, RuntimeWarning, stacklevel=3)


@cache
def _load(name: str) -> Backend:
    module, cls = _CLASSES[name]
    try:
        backend: Backend = getattr(import_module(module), cls)()
    except MissingDependencyError:
        raise  # says how to get it
    except ImportError as error:
        raise BackendError(f"backend {name!r} cannot be loaded: {error}. {_HINTS.get(name, _HINT)}") from error
    return backend
