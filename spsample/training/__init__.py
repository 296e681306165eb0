"""Training of graph neural networks on bulk-sampled minibatches. Needs torch."""

from __future__ import annotations

from spsample.errors import MissingDependencyError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(package="torch", needed_for="spsample.training", extra="pyg") from error

from spsample.nn.block_convolutions import BlockGATConv, BlockGCNConv, BlockSAGEConv
from spsample.nn.blocks import Block, BlockMaker, aggregate
from spsample.nn.dropout import VertexDropout
from spsample.pipelines import CooperativeGradients, FactoredGradients, Gradients, StepLoss, gradients_for
from spsample.pipelines.process import keep_memory
from spsample.settings import ModelConfig, Preset, TrainConfig, preset_for
from spsample.training.callbacks import Callback, Checkpointer, Journal, TensorBoard
from spsample.training.checkpoint import read_checkpoint, write_checkpoint
from spsample.training.evaluation import full_logits, sampled_logits
from spsample.training.models import GNN, build_model, model_names, register_model, stack
from spsample.training.plots import plot_curves, plot_phases
from spsample.training.results import EpochRecord, RankSummary, TrainResult, rank_summary
from spsample.training.trainer import Trainer

__all__ = [
    "GNN",
    "Block",
    "BlockGATConv",
    "BlockGCNConv",
    "BlockMaker",
    "BlockSAGEConv",
    "Callback",
    "Checkpointer",
    "CooperativeGradients",
    "EpochRecord",
    "FactoredGradients",
    "Gradients",
    "Journal",
    "ModelConfig",
    "Preset",
    "RankSummary",
    "StepLoss",
    "TensorBoard",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "VertexDropout",
    "aggregate",
    "build_model",
    "full_logits",
    "gradients_for",
    "keep_memory",
    "model_names",
    "plot_curves",
    "plot_phases",
    "preset_for",
    "rank_summary",
    "read_checkpoint",
    "register_model",
    "sampled_logits",
    "stack",
    "write_checkpoint",
]
