"""What torch's function transforms ask of an `autograd.Function` whose work is done outside torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["one_by_one"]


def one_by_one(
    function: Callable[..., Tensor], info: Any, in_dims: Sequence[int | None], *arguments: Any
) -> tuple[Tensor, int]:
    """The ``vmap`` of a Function: its results for the members of a batch, one after the other, and their dimension.

    Parameters
    ----------
    function
        The Function's ``apply``.
    info, in_dims, arguments
        As torch hands them to ``vmap``: a dimension for each argument that has members, None for others.
    """
    members = (
        [one if dim is None else one.select(dim, i) for one, dim in zip(arguments, in_dims, strict=True)]
        for i in range(info.batch_size)
    )
    return torch.stack([function(*member) for member in members]), 0
