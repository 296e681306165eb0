"""Arrays as torch tensors over the same memory, of the host or of a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spsample.backends import get_backend
from spsample.sampling import adapters

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_array", "as_tensor", "device_of", "new_numbers"]


def as_tensor(array: Any) -> torch.Tensor:
    """A tensor over the memory of a NumPy array (a copy of a read-only one), or of an array on a device.

    Examples
    --------
    >>> as_tensor(np.arange(3))
    tensor([0, 1, 2])
    """
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        array = array.copy()  # torch warns about it (a shared graph, a view of a bulk); what is copied here is small
    tensor: torch.Tensor = adapters.as_tensor(torch, array)
    return tensor


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """A NumPy array over the memory of a tensor of the processor that asks for no gradient.

    Under torch's function transforms, too, where `torch.Tensor.numpy` fails of any tensor.

    Examples
    --------
    >>> as_array(torch.arange(3))
    array([0, 1, 2])
    """
    array: NDArray[Any] = tensor.numpy() if torch.compiler.is_compiling() else np.from_dlpack(tensor)
    return array


def new_numbers(shape: Sequence[int]) -> torch.Tensor:
    """A tensor of float32, not filled, in room for up to an eighth more, so that others of about the size take as much.

    From step to step activations differ a little in size. malloc does not put one where a smaller one was, and the
    process grows; room of one size is used again.

    Examples
    --------
    >>> new_numbers((2, 3)).shape
    torch.Size([2, 3])
    """
    count = math.prod(shape)
    step = 1 << max(count.bit_length() - 4, 0)
    room = as_array(torch.empty(-(-count // step) * step, dtype=torch.float32, device="cpu"))
    return torch.from_numpy(room[:count].reshape(shape))


def device_of(backend: str | None) -> torch.device:
    """Where a model has to be for batches that a backend makes.

    Examples
    --------
    >>> device_of(None)
    device(type='cpu')
    """
    if backend != "cuda":
        return torch.device("cpu")
    return as_tensor(get_backend("cuda").to_device(np.zeros(1, np.float32))).device
