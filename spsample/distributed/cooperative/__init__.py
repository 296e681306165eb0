"""Cooperative minibatches: ranks that work on one batch together, each on the rows of the vertices that it owns."""

from __future__ import annotations

from spsample.distributed.cooperative.minibatch import CooperativeBulk, CooperativeLayer, CooperativeMiniBatch, Routes
from spsample.distributed.cooperative.pieces import PieceReader
from spsample.distributed.cooperative.sharing import VertexOwners, owners_of, pieces_of, require_targets, share_out

__all__ = [
    "CooperativeBulk",
    "CooperativeLayer",
    "CooperativeMiniBatch",
    "PieceReader",
    "Routes",
    "VertexOwners",
    "owners_of",
    "pieces_of",
    "require_targets",
    "share_out",
]
