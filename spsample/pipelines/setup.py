"""Data, ranks and devices of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from spsample.comm import Communicator, collective
from spsample.common.checks import require_type
from spsample.data import Dataset, DatasetPart
from spsample.data.part_stores import require_part_of, require_reach
from spsample.errors import InputError
from spsample.features import FeatureSource, FeatureStore
from spsample.loading.copies import require_device
from spsample.nn.blocks import BlockMaker
from spsample.nn.tensors import as_tensor, device_of
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
    comm : Communicator
        All ranks, also of a rank that samples its own part without the others.
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
    comm: Communicator
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

    def on_part(self, part: DatasetPart) -> TrainingSetup:
        """Return the set-up of a rank that trains on its own part of the data set; collective.

        Its random numbers are its own: else all ranks would take their vertices in the same order.

        Raises
        ------
        InputError
            On every rank, if a part is one of other data, has fewer hops than there are layers, or does not go with
            the settings.
        """
        config, comm = self.config, self.comm
        with collective(comm, call="a look at the parts"):
            require_type("part", part, DatasetPart, "a DatasetPart, as of read_part or part_dataset")
            own, ids = part.dataset, part.original_ids
            require_reach(own, self.sampler)
            require_part_of(part, self.dataset)
            _require_on_parts(config, self.parts)
            x: Any = own.x
            features = x if isinstance(x, FeatureSource) else FeatureStore(x)
            some = np.linspace(0, len(ids) - 1, num=min(64, len(ids))).astype(np.int64)
            mine = as_tensor(features.gather(some)).cpu().numpy()
            train, of_all = ids[own.train_idx], np.asarray(self.dataset.train_idx)
        counts = comm.all_reduce(np.array([len(train), train.sum()], np.int64), phase="set-up")
        theirs = as_tensor(self.features.gather(ids[some])).cpu().numpy()
        with collective(comm, call="a look at the parts"):
            expected, hint = f"those of {self.dataset.name!r}", "Make the parts of this data set, split and scaling."
            if counts.tolist() != [len(of_all), of_all.sum()]:  # their sum tells a part that two ranks have
                given = f"parts with {counts[0]} train vertices, not those {len(of_all)}"
                raise InputError(argument="part", given=given, expected=expected, hint=hint)
            if self.features.stored_dtype == features.stored_dtype and not np.array_equal(mine, theirs):
                given = f"part {own.meta.get('part')} with other features"
                raise InputError(argument="part", given=given, expected=expected, hint=hint)
        return replace(
            self,
            dataset=own,
            features=features,
            graph=own.graph if self.graph is self.dataset.graph else own.graph.normalized("row"),
            config=replace(config, random_seed=_seed_of(config.random_seed, comm.rank)),
            blocks=self.blocks.of_part(ids),
        )


def _require_on_parts(config: TrainConfig, parts: ArrayLike | None) -> None:
    """Refuse settings that do not go with a part of its own on each rank."""
    config.require_own_batches("a part for each rank")
    if config.batches != "shuffled" or parts is not None:
        given, expected = f"{config.batches!r} with a part for each rank", "'shuffled': of the seeds of its part"
        raise InputError(argument="batches", given=given, expected=expected)
    if config.copies is not None:
        given, expected = f"{config.copies!r} with a part for each rank", "none: a part has all rows that it needs"
        raise InputError(argument="copies", given=given, expected=expected)


def _seed_of(random_seed: int, rank: int) -> int:
    """Return the random seed of one rank's part."""
    words = b"".join(number.to_bytes(8, "little") for number in (random_seed, rank))
    return int.from_bytes(sha256(words).digest()[:8], "little")


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


def device_for(config: TrainConfig, comm: Communicator, *, samples_there: bool = False) -> Devices:
    """Return the device of the settings, and whether batches have to be copied there: not where they are made there.

    Parameters
    ----------
    config : TrainConfig
        Its ``device`` and ``backend``.
    comm : Communicator
        The ranks.
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
    >>> from spsample.comm import LocalCommunicator
    >>> from spsample.training import TrainConfig
    >>> device_for(TrainConfig(device="cpu"), LocalCommunicator())
    Devices(model=device(type='cpu'), batches=device(type='cpu'))
    """
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else None
    if name is None:
        return Devices(device_of(config.backend), None)
    device = require_device("device", name)
    if comm.name == "nccl" and device.type == "cuda" and device.index != torch.cuda.current_device():
        given = f"{config.device!r} on a rank of NCCL, whose GPU is cuda:{torch.cuda.current_device()}"
        raise InputError(argument="device", given=given, expected="'cuda': of each rank its own")
    made_on = device_of("cuda") if config.backend == "cuda" else device
    if device != made_on:
        given = f"{config.device!r} with backend='cuda', which samples on {made_on}"
        raise InputError(argument="device", given=given, expected=f"'{made_on}', or none")
    return Devices(device, None if samples_there else device)
