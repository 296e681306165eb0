"""Evaluation on several ranks: each computes its share of the vertices, and all get the logits they ask for."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spsample.distributed import ProcessGrid
from spsample.distributed.placement import Placement
from spsample.distributed.ranks import comm_of, failing_together
from spsample.features import FeatureSource, PartitionedFeatures
from spsample.planning import bulk_sample
from spsample.sampling import GraphSAGE
from spsample.sampling.empty import empty_minibatch
from spsample.training.evaluation import bytes_per_edge, evaluating
from spsample.training.tensors import as_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.loading import BulkLoader
    from spsample.training.blocks import BlockMaker
    from spsample.training.models import GNN

__all__ = ["full_logits_on_ranks", "sampled_logits_on_ranks"]


def full_logits_on_ranks(
    model: GNN, graph: Any, features: FeatureSource, blocks: BlockMaker, rows: ProcessGrid, budget: int
) -> PartitionedFeatures:
    """Return the logits of all vertices, computed with full neighbourhoods; collective.

    Each layer is computed for all vertices before the next one, each rank for a range of them, chunk by chunk; what it
    needs of the layer before it gathers from the others. As `spsample.training.full_logits`, but for rounding.

    Parameters
    ----------
    model
        On the CPU. Put into evaluation mode meanwhile.
    graph
        A distributed graph, before any normalisation.
    features
        Features of all vertices, local or on the same ranks.
    blocks
        Made for this graph and `GraphSAGE`.
    rows
        A grid of all ranks in one column, over which logits are spread.
    budget
        Bytes for one chunk, as in `full_logits`; rows are taken to be of average length.

    Returns
    -------
    PartitionedFeatures
        Rows of logits by vertex.
    """
    placement = _ranges(graph.num_nodes, rows.comm.size)
    source: Any = features
    last = len(model.convs) - 1
    with evaluating(model):
        for number, conv in enumerate(model.convs):
            decoder = model.decoder if number == last else torch.nn.Identity()
            encoder = model.encoder if number == 0 else torch.nn.Identity()
            layer = _Layer(encoder, conv, decoder)
            step = budget // bytes_per_edge(source.dim, model.encoder, conv, decoder)
            step = max(1, step // (1 + graph.num_edges // max(graph.num_nodes, 1)))
            parts = [layer(sampled, source, blocks, rows.comm) for sampled in _chunks(graph, placement, step)]
            with failing_together(rows.comm):
                block = np.concatenate(parts)
            logits = source = PartitionedFeatures(block, rows, placement, phase="activations")
    return logits


class _Layer:
    """One layer of a model, with what acts on vertices before and after it."""

    def __init__(self, before: torch.nn.Module, conv: torch.nn.Module, after: torch.nn.Module) -> None:
        self._before, self._conv, self._after = before, conv, after

    def __call__(
        self, sampled: Any, source: FeatureSource, blocks: BlockMaker, comm: Communicator
    ) -> NDArray[np.float32]:
        """Of the targets of a sampled layer; its sources are gathered by all ranks."""
        h = source.gather(sampled.src_nodes)
        with failing_together(comm):
            part = self._after(self._conv(self._before(as_tensor(h).cpu()), blocks(sampled)))
            result: NDArray[np.float32] = part.numpy()
            return result


def _chunks(graph: Any, placement: Placement, step: int) -> Iterator[Any]:
    """Whole rows of this rank's vertices, `step` targets at a time; as many chunks on every rank."""
    bounds, whole_rows = placement.bounds, GraphSAGE([-1])
    for first in range(0, int(bounds[1]), step):
        size = min(step, int(bounds[1]) - first)
        ids = [np.arange(low + first, min(low + first + size, high)) for low, high in pairwise(bounds.tolist())]
        bulk = bulk_sample(graph, np.concatenate(ids), whole_rows, batch_size=size)
        yield (bulk[0] if len(bulk) else empty_minibatch(bulk, graph.comm.rank)).layers[0]


def _ranges(num_rows: int, ranks: int) -> Placement:
    """Ranges of as many vertices each, but for the last ones."""
    size = -(-num_rows // ranks)
    return Placement(np.minimum(np.arange(ranks + 1, dtype=np.int64) * size, num_rows))


def sampled_logits_on_ranks(model: GNN, loader: BulkLoader, blocks: BlockMaker) -> NDArray[np.float32]:
    """Return the logits of a loader's seeds, in their order, on every rank; each computes its batches. Collective."""
    comm = comm_of(loader.graph)
    logits, places = [], []
    with evaluating(model):
        for batch in loader:
            with failing_together(comm):
                rows = model(*blocks.inputs(batch, model)).cpu().numpy()
                inverse = batch.minibatch.seed_inverse
                logits.append(rows[inverse])
                places.append(batch.batch_id * loader.batch_size + np.arange(len(inverse)))
    return _in_order(comm, np.concatenate(logits), np.concatenate(places))


def _in_order(comm: Communicator, rows: NDArray[np.float32], places: NDArray[np.int64]) -> NDArray[np.float32]:
    """All ranks' rows, each at its place."""
    counts = comm.all_gather(np.array([len(rows)], np.int64), phase="evaluation")[:, 0]
    everywhere = comm.all_gather_v(places, counts, phase="evaluation")
    result = np.empty((len(everywhere), rows.shape[1]), np.float32)
    result[everywhere] = comm.all_gather_v(np.ascontiguousarray(rows), counts, phase="evaluation")
    return result
