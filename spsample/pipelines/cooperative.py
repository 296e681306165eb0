"""All ranks at work on one batch at a time, each on the rows that it owns."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from spsample.loading import Batch
from spsample.nn.dropout import DropoutKey
from spsample.pipelines.gradients import CooperativeGradients
from spsample.pipelines.pipeline import Pipeline
from spsample.pipelines.process import RunGenerator


class CooperativePipeline(Pipeline):
    """In each step all ranks have one batch, of ``batch_size`` seeds for each of them."""

    def _own_options(self) -> dict[str, Any]:
        return {
            **super()._own_options(),
            "batch_size": self.config.batch_size * self.comm.size,
            "batches": "cooperative",
        }

    def _make_gradients(self, model: torch.nn.Module) -> CooperativeGradients:
        return CooperativeGradients(model, self.comm)

    def _dropout_key(self, batch: Batch) -> DropoutKey:
        """A mask belongs to a vertex, whichever rank computes its row."""
        return DropoutKey(self.config.random_seed, self._epoch, batch.batch_id)

    def _drawing(self, batch: Batch) -> AbstractContextManager[None]:
        """Numbers that follow from the batch. Ranks wait for each other meanwhile, so that none is kept waiting."""
        if not self._follows_run:
            RunGenerator.follow_batch(self.config.random_seed, self._epoch, batch.batch_id)
        return nullcontext()


PIPELINE = CooperativePipeline
