"""Evaluation: logits with all neighbours, layer by layer, or with sampled neighbourhoods."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spsample.common.checks import require_type
from spsample.common.units import require_bytes
from spsample.errors import InputError
from spsample.features import FeatureSource
from spsample.loading import BulkLoader
from spsample.planning import bulk_sample
from spsample.sampling import GraphSAGE
from spsample.store import Graph
from spsample.store.graph import require_local
from spsample.training.blocks import BlockMaker
from spsample.training.models import GNN
from spsample.training.tensors import as_tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from spsample.sampling import Sampler

__all__ = ["bytes_per_edge", "evaluating", "full_logits", "sampled_logits"]

_Read = Callable[["NDArray[Any]"], "Tensor"]

EVALUATION_BYTES = 2**30
"""Memory for the part of the graph that is evaluated at once, unless told otherwise."""


def full_logits(
    model: GNN,
    graph: Graph,
    features: FeatureSource,
    *,
    memory_budget: int | str = EVALUATION_BYTES,
    activations: str | Path | None = None,
) -> NDArray[np.float32]:
    """Return the logits of all vertices, computed with full neighbourhoods.

    Each layer is computed for all vertices before the next one, so that the work is one pass over the edges per layer.
    In memory are the activations of two layers (the one that is read, the one that is written) and one chunk: as many
    vertices, with all their neighbours, as fit the budget.

    Parameters
    ----------
    model
        On the CPU. Put into evaluation mode meanwhile.
    graph
        The graph the model was trained on, before any normalisation.
    features
        Features of all vertices.
    memory_budget
        Bytes, or a text such as ``"1GiB"``, for one chunk: its edges and its sources' activations, messages and
        results. A vertex whose neighbours alone need more is a chunk of its own. Changes the result by rounding only.
    activations
        A folder for the activations, which are memory-mapped files there meanwhile; in memory where None.

    Returns
    -------
    ndarray
        float32, shape ``(num_nodes, num_classes)``; of a model with ``out_dim`` logits that many columns.

    Examples
    --------
    >>> from spsample.data import planted
    >>> from spsample.features import FeatureStore
    >>> from spsample.training import ModelConfig, build_model
    >>> data = planted(300)
    >>> model = build_model(4, 4, 2, ModelConfig("gat", hidden=8))
    >>> full_logits(model, data.graph, FeatureStore(data.x), memory_budget="1MiB").shape
    (300, 4)
    """
    _check(model, features)
    require_local(graph, "a Graph")
    budget = require_bytes("memory_budget", memory_budget)
    with evaluating(model), _activations(activations) as new:
        return _layer_by_layer(model, graph, features, budget, new)


def sampled_logits(
    model: GNN,
    graph: Graph,
    ids: ArrayLike,
    sampler: Sampler,
    features: FeatureSource,
    *,
    blocks: BlockMaker,
    batch_size: int = 1024,
    random_seed: int = 0,
    backend: str | None = None,
) -> NDArray[np.float32]:
    """Return the logits of some vertices, computed with sampled neighbourhoods.

    Parameters
    ----------
    model
        Put into evaluation mode meanwhile; as many convolutions as the sampler has layers.
    graph
        The graph to sample from, normalised by rows for a layer-wise sampler.
    ids
        The vertices, repeats allowed.
    sampler
        Any; it need not be that of the training, nor have its sizes.
    features
        Features of all vertices.
    blocks
        Made for this sampler.
    batch_size, random_seed, backend
        As in `BulkLoader`.

    Returns
    -------
    ndarray
        float32, one row per vertex of ``ids``.
    """
    _check(model, features)
    require_type("blocks", blocks, BlockMaker, "a BlockMaker")
    loader = BulkLoader(
        graph,
        ids,
        sampler,
        batch_size=batch_size,
        features=features,
        shuffle=False,
        random_seed=random_seed,
        backend=backend,
    )
    if len(loader) == 0:
        raise InputError(argument="ids", given="none", expected="at least one vertex")
    parts = []
    with evaluating(model):
        for batch in loader:
            logits = model(*blocks.inputs(batch, model))
            parts.append(logits.cpu().numpy()[batch.minibatch.seed_inverse])
    return np.concatenate(parts)


def _check(model: GNN, features: FeatureSource) -> None:
    require_type("model", model, GNN, "a GNN, as build_model makes it")
    require_type("features", features, FeatureSource, "a FeatureSource")


@contextmanager
def evaluating(model: GNN) -> Iterator[None]:
    """Evaluation mode, without gradients."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def _layer_by_layer(
    model: GNN, graph: Graph, features: FeatureSource, budget: int, new: Callable[[int, int], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Encoder and decoder act on one vertex at a time: within the first and the last layer's chunks."""
    whole_rows = GraphSAGE([-1])
    blocks = BlockMaker(graph, whole_rows)
    last = len(model.convs) - 1
    read: _Read = lambda ids: model.encoder(as_tensor(features.gather(ids)).cpu())  # noqa: E731
    width, result = features.dim, np.empty((0, 0), dtype=np.float32)
    for number, conv in enumerate(model.convs):
        decoder = model.decoder if number == last else torch.nn.Identity()
        limit = budget // bytes_per_edge(width, model.encoder, conv, decoder)
        for start, stop in _chunks(graph, limit):
            ids = np.arange(start, stop)
            layer = bulk_sample(graph, ids, whole_rows, batch_size=len(ids))[0].layers[0]
            part = decoder(conv(read(layer.src_nodes), blocks(layer))).numpy()
            if start == 0:
                result = new(graph.num_nodes, part.shape[1])
            result[start:stop] = part
        read, width = _reader(result), result.shape[1]
    return np.array(result)


def _reader(h: NDArray[np.float32]) -> _Read:
    return lambda ids: torch.from_numpy(h[ids])


def bytes_per_edge(width: int, *modules: torch.nn.Module) -> int:
    """Bound for an edge and its source: ids and values, and eight rows of the widest matrix that is in use."""
    widest = max([width, *(max(p.shape) for module in modules for p in module.parameters())])
    return 40 + 8 * 4 * widest


def _chunks(graph: Graph, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of vertices with at most ``limit`` edges and targets each, or of one vertex."""
    costs = graph.indptr + np.arange(graph.num_nodes + 1)
    start = 0
    while start < graph.num_nodes:
        fits = int(np.searchsorted(costs, costs[start] + limit, side="right")) - 1
        stop = max(start + 1, fits)
        yield start, stop
        start = stop


@contextmanager
def _activations(folder: str | Path | None) -> Iterator[Callable[[int, int], NDArray[np.float32]]]:
    """A function of rows and columns that makes an array; the one before the last one may be given up by then."""
    if folder is None:
        yield lambda rows, columns: np.empty((rows, columns), dtype=np.float32)
        return
    with tempfile.TemporaryDirectory(prefix="activations-", dir=folder) as scratch:
        paths: list[Path] = []

        def mapped(rows: int, columns: int) -> NDArray[np.float32]:
            for old in paths[:-1]:
                old.unlink(missing_ok=True)
            paths.append(Path(scratch) / f"{len(paths)}.f32")
            return np.memmap(paths[-1], dtype=np.float32, mode="w+", shape=(rows, columns))

        yield mapped
