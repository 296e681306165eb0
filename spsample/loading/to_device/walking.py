"""The arrays in what a loader delivers: of a batch, of PyG's data, or of containers that a transform returns."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from spsample.backends.tensors import is_tensor
from spsample.common.checks import short
from spsample.errors import DTypeError

__all__ = ["map_arrays"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_EXPECTED = "a Batch, PyG's Data, an array, a tensor, or a tuple, list or dictionary of such"


def map_arrays(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a loader delivers with what a function makes of each array and tensor, in a fixed order.

    Numbers and texts stay as they are, and so do arrays that are on a device.

    Raises
    ------
    DTypeError
        If it holds something else, whose arrays nobody knows.

    Examples
    --------
    >>> map_arrays({"x": np.arange(2), "name": "a"}, lambda array: array + 1)
    {'x': array([1, 2]), 'name': 'a'}
    """
    if isinstance(value, np.ndarray):
        return function(value)
    if is_tensor(value):
        return function(value) if value.device.type == "cpu" else value
    if hasattr(value, "map_arrays"):
        return value.map_arrays(lambda array: map_arrays(array, function))
    if isinstance(value, (tuple, list)):
        return _of_sequence(value, function)
    if isinstance(value, dict):
        return {key: map_arrays(one, function) for key, one in value.items()}
    if isinstance(value, _PLAIN) or hasattr(value, "__dlpack__"):
        return value
    if _is_of_pyg(value):
        return copy.copy(value).apply(lambda one: map_arrays(one, function) if is_tensor(one) else one)
    raise DTypeError(
        argument="transform",
        given=f"{short(value)} of type {type(value).__name__}, to be copied to a device",
        expected=_EXPECTED,
        hint="Without device= a transform may return anything, on any device.",
    )


def _of_sequence(value: Any, function: Callable[[Any], Any]) -> Any:
    """A tuple, a named one, or a list."""
    items = [map_arrays(one, function) for one in value]
    if isinstance(value, list):
        return items
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def _is_of_pyg(value: Any) -> bool:
    """Whether it is `torch_geometric.data.Data`, or another of its kind; PyG is not imported for it."""
    module = sys.modules.get("torch_geometric.data.data")
    return module is not None and isinstance(value, module.BaseData)
