"""Devices of a training: that of its model, and copies of batches to it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from spsample.errors import InputError
from spsample.loading.copies import require_device
from spsample.nn.tensors import device_of
from spsample.settings.training import TrainConfig
from spsample.store.base_graph import BaseGraph


class Devices(NamedTuple):
    """The devices of a training.

    Attributes
    ----------
    model : torch.device
    batches : torch.device or None
        Where a loader is to copy them; None: they are left where they are made.
    """

    model: torch.device
    batches: torch.device | None


def device_for(config: TrainConfig, graph: BaseGraph, *, samples_there: bool = False) -> Devices:
    """Return the device of the settings, and whether batches have to be copied there: not where they are made there.

    Parameters
    ----------
    config : TrainConfig
        Its ``device`` and ``backend``.
    graph : BaseGraph
        That batches are sampled from.
    samples_there
        Whether batches are made on a device.

    Raises
    ------
    InputError
        If another device makes the batches, or NCCL has to serve several ranks on one GPU.
    BackendError
        If there is no GPU.

    Examples
    --------
    >>> import spsample
    >>> from spsample.training import TrainConfig
    >>> device_for(TrainConfig(device="cpu"), spsample.Graph([0, 0], []))
    Devices(model=device(type='cpu'), batches=device(type='cpu'))
    """
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else None
    if name is None:
        return Devices(device_of(config.backend), None)
    device = require_device("device", name)
    if graph.comm.name == "nccl" and device.type == "cuda" and device.index != torch.cuda.current_device():
        given = f"{config.device!r} on a rank of NCCL, whose GPU is cuda:{torch.cuda.current_device()}"
        raise InputError(argument="device", given=given, expected="'cuda': of each rank its own")
    made_on = device_of("cuda") if config.backend == "cuda" else device
    if device != made_on:
        given = f"{config.device!r} with backend='cuda', which samples on {made_on}"
        raise InputError(argument="device", given=given, expected=f"'{made_on}', or none")
    return Devices(device, None if samples_there else device)
