"""Arrays as torch tensors over the same memory, of the host or of a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spsample.backends import get_backend
from spsample.nn.private import is_untransformed
from spsample.sampling import adapters


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


def flat(tensor: torch.Tensor) -> NDArray[Any]:
    """The numbers of a tensor of the processor in C order, one after the other; of a contiguous one no copy.

    Examples
    --------
    >>> flat(torch.eye(2))
    array([1., 0., 0., 1.], dtype=float32)
    """
    numbers: NDArray[Any] = tensor.detach().contiguous().numpy().reshape(-1)
    return numbers


def new_numbers(shape: Sequence[int]) -> torch.Tensor:
    """A tensor of float32, not filled, in room for a fifth more at most, so that others of about the size take as much.

    From step to step activations differ a little in size. malloc does not put one where a smaller one was, and the
    process grows; room of one size is used again. There is room for `rounded_rows`.

    Examples
    --------
    >>> new_numbers((2, 3)).shape
    torch.Size([2, 3])
    """
    count = rounded_rows(shape[0]) * math.prod(shape[1:]) if shape else 1
    room = torch.empty(_rounded(count, bits=4), dtype=torch.float32, device="cpu")
    return room.resize_(tuple(shape))  # keeps the room, and is no view


def rounded_rows(rows: int) -> int:
    """The number, or the next larger one, of a few numbers of rows, 16 between two powers of two: at most 1/16 more.

    Examples
    --------
    >>> [rounded_rows(rows) for rows in (0, 13, 32, 33, 29_300)]
    [0, 13, 32, 34, 29696]
    """
    return _rounded(rows, bits=5)


def _rounded(number: int, bits: int) -> int:
    """The number, or the next larger one, that is 0 behind its first `bits` binary digits."""
    step = 1 << max(number.bit_length() - bits, 0)
    return -(-number // step) * step


def with_rounded_rows(x: torch.Tensor) -> torch.Tensor:
    """A matrix with whatever lies behind it as further rows, up to `rounded_rows`; as it is where no room is behind it.

    Rows added are not to be written to, and may hold anything.

    Examples
    --------
    >>> with_rounded_rows(new_numbers((33, 2))).shape, with_rounded_rows(torch.ones(33, 2)).shape
    (torch.Size([34, 2]), torch.Size([33, 2]))
    """
    rows, width = rounded_rows(len(x)), x.shape[1]
    if rows == len(x) or not is_untransformed(x) or not x.is_contiguous():
        return x
    room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    return x.as_strided((rows, width), (width, 1)) if rows * width <= room else x


def device_of(backend: str | None) -> torch.device:
    """Return the device of a model for batches that a backend makes.

    Examples
    --------
    >>> device_of(None)
    device(type='cpu')
    """
    if backend != "cuda":
        return torch.device("cpu")
    return as_tensor(get_backend("cuda").to_device(np.zeros(1, np.float32))).device
