"""Sampling, fetching and training side by side, in threads; each rank trains a batch of its own in each step."""

from __future__ import annotations

import torch

from spsample.pipelines.gradients import Gradients, gradients_for
from spsample.pipelines.pipeline import Pipeline


class OverlappedPipeline(Pipeline):
    """The loader works ahead, in threads."""

    def _make_gradients(self, model: torch.nn.Module) -> Gradients:
        return gradients_for(model, self.comm)


PIPELINE = OverlappedPipeline
