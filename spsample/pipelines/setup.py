"""`TrainingSetup`: what a run trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from spsample.data import Dataset
from spsample.features import FeatureSource
from spsample.nn.blocks import BlockMaker
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
