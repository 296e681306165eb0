"""From seeds to minibatches with features and labels."""

from __future__ import annotations

from spsample.loading.batch import Batch
from spsample.loading.bulk_files import BulkFiles, Resumption, bulk_arrays, load_bulk
from spsample.loading.factored import FactoredLoader, SamplerCount, samplers_for
from spsample.loading.loader import BulkLoader
from spsample.loading.views import DglLoader, PygLoader

__all__ = [
    "Batch",
    "BulkFiles",
    "BulkLoader",
    "DglLoader",
    "FactoredLoader",
    "PygLoader",
    "Resumption",
    "SamplerCount",
    "bulk_arrays",
    "load_bulk",
    "samplers_for",
]
