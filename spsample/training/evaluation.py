"""Evaluation: logits with all neighbours, layer by layer, or with sampled ones, and the metric of a split."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from spsample.comm import Communicator, LocalCommunicator, collective
from spsample.comm.objects import require_same
from spsample.common.checks import require_type
from spsample.common.units import require_bytes
from spsample.distributed import ProcessGrid
from spsample.distributed.placement import Placement
from spsample.errors import InputError
from spsample.features import FeatureSource, FeatureStore, PartitionedFeatures
from spsample.loading import BulkLoader
from spsample.nn.blocks import BlockMaker
from spsample.nn.tensors import as_tensor
from spsample.pipelines import Pipeline, TrainingSetup
from spsample.planning import bulk_sample
from spsample.sampling import GraphSAGE, Layer, Sampler
from spsample.sampling.bulk import empty_minibatch
from spsample.store import Graph
from spsample.store.base_graph import BaseGraph, require_graph, require_local
from spsample.training.metrics import METRICS
from spsample.training.models import GNN

EVALUATION_BYTES = 2**30
"""Memory for the vertices whose layer is evaluated at once, by default."""


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
        A folder for the activations, which are files without a name there meanwhile, memory-mapped; in memory where
        None.

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
    blocks = BlockMaker(graph, GraphSAGE([-1]))
    logits = layer_by_layer(model, VerticesHere(graph, activations), features, blocks, budget)
    return logits.gather(np.arange(graph.num_nodes))


def sampled_logits(
    model: GNN,
    graph: BaseGraph,
    ids: ArrayLike,
    sampler: Sampler,
    features: FeatureSource,
    *,
    blocks: BlockMaker,
    batch_size: int = 1024,
    random_seed: int = 0,
    backend: str | None = None,
    device: Any = None,
) -> NDArray[np.float32]:
    """Return the logits of some vertices, computed with sampled neighbourhoods.

    On a graph of several ranks each computes its batches, and all get all logits: the call is collective.

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
    batch_size, random_seed, backend, device
        As in `BulkLoader`.

    Returns
    -------
    ndarray
        float32, one row per vertex of ``ids``.
    """
    _check(model, features)
    require_type("blocks", blocks, BlockMaker, "a BlockMaker")
    require_graph(graph)
    loader = BulkLoader(
        graph,
        ids,
        sampler,
        batch_size=batch_size,
        prefetch=0 if graph.is_distributed else 1,
        features=features,
        shuffle=False,
        random_seed=random_seed,
        backend=backend,
        device=device,
    )
    if len(loader) == 0:
        raise InputError(argument="ids", given="none", expected="at least one vertex")
    comm = loader.comm
    logits, places = [], []
    with evaluating(model):
        for batch in loader:
            with collective(comm, call="sampled evaluation"):
                rows = model(*blocks.inputs(batch, model)).cpu().numpy()
                inverse = batch.minibatch.seed_inverse
                logits.append(rows[inverse])
                places.append(batch.batch_id * loader.batch_size + np.arange(len(inverse)))
    mine = np.concatenate(logits)
    counts = comm.all_gather(np.array([len(mine)], np.int64), phase="evaluation")[:, 0]
    everywhere = comm.all_gather_v(np.concatenate(places), counts, phase="evaluation")
    result = np.empty((len(everywhere), mine.shape[1]), np.float32)
    result[everywhere] = comm.all_gather_v(np.ascontiguousarray(mine), counts, phase="evaluation")
    return result


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


def layer_by_layer(
    model: GNN, vertices: Vertices, features: FeatureSource, blocks: BlockMaker, budget: int
) -> FeatureSource:
    """Return the logits of all vertices, computed with full neighbourhoods, as features; collective.

    Each layer is computed for all vertices before the next one. Encoder and decoder act on one vertex at a time: within
    the first and the last layer's chunks.

    Parameters
    ----------
    model
        On the CPU. Put into evaluation mode meanwhile.
    vertices
        Who computes what: `VerticesHere`, or `VerticesOnRanks`.
    features
        Features of all vertices, local or on the same ranks.
    blocks
        Made for this graph and `GraphSAGE`.
    budget
        Bytes for one chunk, as in `full_logits`.
    """
    activations, last = features, len(model.convs) - 1
    with evaluating(model):
        for number, conv in enumerate(model.convs):
            encoder = model.encoder if number == 0 else torch.nn.Identity()
            decoder = model.decoder if number == last else torch.nn.Identity()
            sizes = [max(p.shape) for module in (model.encoder, conv, decoder) for p in module.parameters()]
            # of an edge and its source: ids and values, and eight rows of the widest matrix that is in use
            limit = budget // (40 + 8 * 4 * max([activations.dim, *sizes]))
            activations = vertices.kept(_computed(vertices, limit, activations, blocks, (encoder, conv, decoder)))
    return activations


def _computed(
    vertices: Vertices, limit: int, features: FeatureSource, blocks: BlockMaker, modules: tuple[torch.nn.Module, ...]
) -> Iterator[NDArray[np.float32]]:
    """The activations of one layer, chunk by chunk; its sources are gathered by all ranks."""
    before, convolution, after = modules
    for layer in vertices.chunks(limit):
        h = features.gather(layer.src_nodes)
        with collective(vertices.comm, call="full evaluation"):
            chunk: NDArray[np.float32] = after(convolution(before(as_tensor(h).cpu()), blocks(layer))).numpy()
        yield chunk


class VerticesHere:
    """All vertices of a graph on one rank, in chunks of exactly as many edges as fit.

    Parameters
    ----------
    graph : Graph
    folder : path-like, optional
        For files of activations; by default these are in memory.
    """

    def __init__(self, graph: Graph, folder: str | Path | None = None) -> None:
        self.comm: Communicator = LocalCommunicator()
        self._graph, self._folder = graph, folder

    def chunks(self, limit: int) -> Iterator[Layer]:
        """Ranges of vertices with at most ``limit`` edges and targets each, or of one vertex."""
        graph, start = self._graph, 0
        costs = graph.indptr + np.arange(graph.num_nodes + 1)
        while start < graph.num_nodes:
            fits = int(np.searchsorted(costs, costs[start] + limit, side="right")) - 1
            stop = max(start + 1, fits)
            yield bulk_sample(graph, np.arange(start, stop), GraphSAGE([-1]), batch_size=stop - start)[0].layers[0]
            start = stop

    def kept(self, chunks: Iterator[NDArray[np.float32]]) -> FeatureStore:
        """In one array."""
        rows, start = np.empty((0, 0), np.float32), 0
        for chunk in chunks:
            if start == 0:
                rows = self._new_rows(chunk.shape[1])
            rows[start : start + len(chunk)] = chunk
            start += len(chunk)
        return FeatureStore(rows)

    def _new_rows(self, width: int) -> NDArray[np.float32]:
        shape = self._graph.num_nodes, width
        if self._folder is None:
            return np.empty(shape, np.float32)
        with tempfile.TemporaryFile(dir=self._folder) as file:  # there as long as the map is
            return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)


class VerticesOnRanks:
    """Ranges of as many vertices of a distributed graph for each rank, which compute side by side; collective.

    Parameters
    ----------
    graph : distributed graph
        Its rows are taken to be of average length.
    rows : ProcessGrid
        Of all ranks in one column, over which activations are spread.
    """

    def __init__(self, graph: Any, rows: ProcessGrid) -> None:
        self.comm = rows.comm
        self._graph, self._rows = graph, rows
        size = -(-graph.num_nodes // rows.comm.size)
        self._placement = Placement(np.minimum(np.arange(rows.comm.size + 1) * size, graph.num_nodes).astype(np.int64))

    def chunks(self, limit: int) -> Iterator[Layer]:
        """As many targets at a time as have about ``limit`` edges."""
        graph, bounds = self._graph, self._placement.bounds
        step = max(1, limit // (1 + graph.num_edges // max(graph.num_nodes, 1)))
        for first in range(0, int(bounds[1]), step):
            size = min(step, int(bounds[1]) - first)
            ids = [np.arange(low + first, min(low + first + size, high)) for low, high in pairwise(bounds.tolist())]
            bulk = bulk_sample(graph, np.concatenate(ids), GraphSAGE([-1]), batch_size=size)
            yield (bulk[0] if len(bulk) else empty_minibatch(bulk, self.comm.rank)).layers[0]

    def kept(self, chunks: Iterator[NDArray[np.float32]]) -> PartitionedFeatures:
        """Each rank its vertices'."""
        computed = list(chunks)
        with collective(self.comm, call="full evaluation"):
            block = np.concatenate(computed)
        return PartitionedFeatures(block, self._rows, self._placement, phase="activations")


Vertices: TypeAlias = VerticesHere | VerticesOnRanks
"""The vertices that a rank computes, and where the activations of all vertices are kept.

``chunks(limit)`` gives whole rows of this rank's, about that many edges and targets at a time, and as many chunks on
every rank; ``kept(chunks)`` their activations, in this order, as features of the next layer.
"""


class Evaluator:
    """Evaluates a model with all neighbours, layer by layer, or with sampled ones. Calls are collective.

    Parameters
    ----------
    setup : TrainingSetup

    Raises
    ------
    InputError
        If ranks have different splits or labels, the labels do not allow the metric, or there are not as many test
        sizes as layers.
    """

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup, self._dataset, self._graph = setup, setup.dataset, setup.dataset.graph
        self._comm = self._graph.comm
        self._require_same_split()
        self.sampler, sizes = setup.sampler, setup.config.test_sizes
        if sizes is not None:
            if len(sizes) != len(self.sampler.sizes):
                expected = f"as many as the model has layers: {len(self.sampler.sizes)}"
                raise InputError(argument="test_sizes", given=f"{len(sizes)} sizes", expected=expected)
            self.sampler = self.sampler.with_sizes(sizes)
        metric, outputs = METRICS[self._dataset.metric], self._dataset.num_outputs
        for subset in ("val", "test"):  # refuse a metric that the labels do not allow before anything is trained
            y = self._dataset.y[getattr(self._dataset, f"{subset}_idx")]
            metric(np.zeros((len(y), outputs), dtype=np.float32), y)
        self._rows: ProcessGrid | None = None  # of logits on ranks, once they are computed

    def close(self) -> None:
        """Free the communicators that were made for it."""
        if self._rows is not None:
            self._rows.close()

    def scores(self, model: GNN, pipeline: Pipeline, subsets: Sequence[str], kind: str) -> dict[str, float]:
        """Return the metric of each subset of the split.

        Parameters
        ----------
        model
        pipeline
            That trains it.
        subsets
            Among "train", "val" and "test".
        kind
            "full" or "sampled".
        """
        metric = METRICS[self._dataset.metric]
        ids = {subset: getattr(self._dataset, f"{subset}_idx") for subset in subsets}
        with self._setup.phases.timed("evaluation"):
            logits = self.logits(model, pipeline, kind, np.concatenate(list(ids.values())))
            if not np.isfinite(logits).all():
                raise divergence(self._setup.config.learning_rate, "logits that are not finite")
            ends = np.cumsum([len(vertices) for vertices in ids.values()])[:-1]
            rows = np.split(logits, ends)
            return {
                subset: metric(part, self._dataset.y[ids[subset]]) for subset, part in zip(subsets, rows, strict=True)
            }

    def logits(self, model: GNN, pipeline: Pipeline, kind: str, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return logits of vertices, on every rank; each computes its share. Parameters are those of `scores`."""
        setup, config = self._setup, self._setup.config
        if kind == "full":
            budget = require_bytes("evaluation_memory", config.evaluation_memory)
            vertices: Vertices = VerticesHere(self._graph)
            if self._graph.is_distributed:
                self._rows = ProcessGrid(self._comm) if self._rows is None else self._rows
                vertices = VerticesOnRanks(self._graph, self._rows)
            on_host = model if pipeline.devices.model.type == "cpu" else copy.deepcopy(model).cpu()
            return layer_by_layer(on_host, vertices, setup.features, setup.blocks.whole_rows(), budget).gather(ids)
        features = pipeline.loader.features if pipeline.setup.dataset is setup.dataset else None
        return sampled_logits(
            model,
            setup.graph,
            ids,
            self.sampler,
            setup.features if features is None else features,
            blocks=setup.blocks,
            batch_size=config.batch_size,
            random_seed=config.random_seed,
            backend=config.backend,
            device=pipeline.devices.batches,
        )

    def _require_same_split(self) -> None:
        """Refuse vertices or labels that differ between ranks."""
        if self._comm.size == 1:
            return
        ids = {f"{name}_idx": np.asarray(getattr(self._dataset, f"{name}_idx")) for name in ("train", "val", "test")}
        with collective(self._comm, call="a look at the labels"):
            labels = np.asarray(self._dataset.y)[np.concatenate(list(ids.values()))]
        require_same(self._comm, **ids, labels=labels)


def divergence(learning_rate: float, given: str) -> InputError:
    """Return the error of a run whose numbers are no longer finite."""
    expected, hint = "one small enough for the loss to stay finite", "Features that are not finite do this too."
    return InputError(argument="learning_rate", given=f"{learning_rate}, and {given}", expected=expected, hint=hint)
