"""Training of graph neural networks on bulk-sampled minibatches. Needs torch."""

from __future__ import annotations

from spsample.errors import MissingDependencyError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(package="torch", needed_for="spsample.training", extra="pyg") from error

from spsample.training.evaluation import full_logits
from spsample.training.models import GNN, ModelConfig, build_model
from spsample.training.presets import Preset, preset_for
from spsample.training.trainer import EpochRecord, TrainConfig, Trainer, TrainResult

__all__ = [
    "GNN",
    "EpochRecord",
    "ModelConfig",
    "Preset",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "build_model",
    "full_logits",
    "preset_for",
]
