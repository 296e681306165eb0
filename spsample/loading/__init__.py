"""From seeds to minibatches with features and labels."""

from __future__ import annotations

from spsample.loading.batch import Batch
from spsample.loading.bulk_files import BulkFiles, Resumption, bulk_arrays, load_bulk
from spsample.loading.loader import BulkLoader
from spsample.loading.pyg import PygLoader

__all__ = ["Batch", "BulkFiles", "BulkLoader", "PygLoader", "Resumption", "bulk_arrays", "load_bulk"]
