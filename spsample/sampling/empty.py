"""A minibatch without seeds, for a rank that has none left in a step that all ranks take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spsample.backends import backend_for
from spsample.sampling.bulk import BulkSample, MiniBatch
from spsample.sampling.bulk_layer import BulkLayer, Ranges
from spsample.sampling.seeds import SeedBatches
from spsample.sparse import RowSelector


def empty_minibatch(like: BulkSample, batch_id: int) -> MiniBatch:
    """A minibatch of no seeds: as many layers as those of a bulk, of the same dtypes, with 0 rows.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = spsample.bulk_sample(graph, [0, 1, 3], spsample.GraphSAGE([2]), batch_size=2)
    >>> empty_minibatch(bulk, 7)
    MiniBatch(batch_id=7, seeds=0, layers=[0x0])
    """
    ptr = np.zeros(2, np.int64)
    selector = RowSelector(ptr, like.seed_batches.selector.vertices[:0], np.array([batch_id], np.int64))
    bulk = BulkSample(like.sampler, SeedBatches(selector, ptr), [_empty(layer) for layer in like.layers])
    return MiniBatch(bulk, 0)


def _empty(layer: BulkLayer) -> BulkLayer:
    """A layer of one batch without rows."""
    none = Ranges(np.zeros(2, np.int64))
    return replace(
        layer,
        dst=layer.dst[:0],
        dst_ranges=none,
        src=layer.src[:0],
        src_ranges=none,
        indptr=backend_for(layer.src).to_device(np.zeros(1, np.int64)),
        indptr_ranges=Ranges(np.zeros(2, np.int64), more=1),
        indices=layer.indices[:0],
        data=None if layer.data is None else layer.data[:0],
        edge_ids=None if layer.edge_ids is None else layer.edge_ids[:0],
        entry_ranges=none,
    )


__all__ = ["empty_minibatch"]
