"""From seeds to minibatches with features and labels."""

from __future__ import annotations

from spsample.loading.batch import Batch
from spsample.loading.loader import BulkLoader
from spsample.loading.pyg import PygLoader

__all__ = ["Batch", "BulkLoader", "PygLoader"]
