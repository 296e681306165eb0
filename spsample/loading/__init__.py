"""From seeds to minibatches with features and labels."""

from __future__ import annotations

from spsample.loading.loader import Batch, BulkLoader

__all__ = ["Batch", "BulkLoader"]
