"""One model on several ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from spsample.comm import collective

if TYPE_CHECKING:
    from spsample.comm import Communicator

__all__ = ["first_ranks_model"]

Model = TypeVar("Model", bound=torch.nn.Module)


def first_ranks_model(comm: Communicator, build: Callable[[], Model]) -> Model:
    """Return a model that every rank builds, with the weights that rank 0's got; collective.

    Rank 0 builds first and alone: where ranks are threads they share torch's generator.
    """
    if comm.size == 1:
        return build()
    with collective(comm):
        model = build() if comm.rank == 0 else None
    with collective(comm):
        built = build() if model is None else model
    for tensor in built.state_dict().values():
        array = tensor.detach().cpu().numpy()
        tensor.copy_(torch.from_numpy(comm.broadcast(array, phase="set-up")))
    return built
