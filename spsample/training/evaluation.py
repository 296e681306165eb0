"""Exact evaluation: every vertex with all of its neighbours, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spsample.training.blocks import full_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from spsample.features import FeatureSource
    from spsample.store import Graph
    from spsample.training.models import GNN

__all__ = ["full_logits"]

_Rows = Callable[[int, int], "Tensor"]


def full_logits(
    model: GNN, graph: Graph, features: FeatureSource, aggregation: str, *, chunk_size: int = 16384
) -> NDArray[np.float32]:
    """Return the logits of all vertices, computed with full neighbourhoods.

    Each layer is computed for all vertices before the next one, ``chunk_size`` vertices at a time: the work
    is one pass over the edges per layer, and memory holds the messages and the result of one layer.

    Parameters
    ----------
    model
        Put into evaluation mode meanwhile.
    graph
        The graph the model was trained on.
    features
        Features of all vertices.
    aggregation
        ``"mean"`` or ``"values"``, as in training.
    chunk_size
        Vertices at a time; does not change the result.

    Returns
    -------
    ndarray
        float32, shape ``(num_nodes, num_classes)``.
    """
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            logits = _forward(model, graph, features, aggregation, chunk_size)
    finally:
        model.train(was_training)
    result: NDArray[np.float32] = logits.numpy()
    return result


def _forward(model: GNN, graph: Graph, features: FeatureSource, aggregation: str, chunk_size: int) -> Tensor:
    def encoded(start: int, stop: int) -> Tensor:
        h: Tensor = model.encoder(torch.from_numpy(features.gather(np.arange(start, stop))))
        return h

    chunks = list(_chunks(graph.num_nodes, chunk_size))
    rows: _Rows = encoded
    h = torch.empty(0)
    for conv in model.convs:
        h = _layer(conv, graph, rows, aggregation, chunks)
        rows = _slices(h)
    return torch.cat([model.decoder(h[start:stop]) for start, stop in chunks])


def _layer(conv: Any, graph: Graph, rows: _Rows, aggregation: str, chunks: list[tuple[int, int]]) -> Tensor:
    """Apply one convolution to all vertices; ``rows(start, stop)`` is its input."""
    messages = torch.cat([conv.message(rows(start, stop)) for start, stop in chunks])
    return torch.cat(
        [
            conv.combine(full_rows(graph, start, stop, aggregation).aggregate(messages), rows(start, stop))
            for start, stop in chunks
        ]
    )


def _slices(h: Tensor) -> _Rows:
    return lambda start, stop: h[start:stop]


def _chunks(total: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, total, size):
        yield start, min(start + size, total)
