"""Data, ranks and devices of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import ArrayLike

from spsample.data import Dataset
from spsample.errors import InputError
from spsample.features import FeatureSource
from spsample.loading.copies import require_device
from spsample.nn.blocks import BlockMaker
from spsample.nn.tensors import device_of
from spsample.sampling import Sampler
from spsample.settings.training import TrainConfig
from spsample.store.base_graph import BaseGraph
from spsample.timeline import Phases


@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """Data and ranks of a run.

    Attributes
    ----------
    dataset : Dataset
    features : FeatureSource
        Of the data set.
    graph : BaseGraph
        The graph that batches are sampled from.
    sampler : Sampler
    config : TrainConfig
    blocks : BlockMaker
        Makes the layers' inputs of a batch.
    phases : Phases
        Counter of the seconds of training.
    parts : array-like (vertices,), optional
        Of local seeds, as of `BulkLoader`.
    """

    dataset: Dataset
    features: FeatureSource
    graph: BaseGraph
    sampler: Sampler
    config: TrainConfig
    blocks: BlockMaker
    phases: Phases
    parts: ArrayLike | None = None

    @property
    def workload(self) -> dict[str, Any]:
        """The workload of a run, as scores of vertices take it."""
        return {
            "graph": self.graph.host if self.graph.is_on_device else self.graph,
            "seeds": self.dataset.train_idx,
            "sampler": self.sampler,
            "batch_size": self.config.batch_size,
        }


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
