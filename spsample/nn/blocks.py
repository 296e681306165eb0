"""Sampled layers as torch operators: one weighted sum over the in-neighbours of each target."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spsample.comm import Channel, collective
from spsample.common.checks import require_choice, require_type
from spsample.errors import InputError
from spsample.loading import Batch
from spsample.nn.attention import AttentionEntries, sum_by_head
from spsample.nn.dropout import DropoutKey, MaskedRows
from spsample.nn.exchange import Exchange, require_exchanged
from spsample.nn.sums import weighted_sums, with_targets
from spsample.nn.tensors import as_tensor
from spsample.sampling import Adjacency, Sampler
from spsample.sampling.arguments import require_sampler
from spsample.store.base_graph import BaseGraph, require_graph
from spsample.store.construction import sums_by_row

_PRODUCTS_OF_A_SUM = 16
"""Multiplications of a matrix product in the time of one number of a sum over neighbours."""


@dataclass(frozen=True)
class Block:
    """One layer's sampled adjacency as the linear operator ``h -> A h``.

    Attributes
    ----------
    indptr
        int64, shape ``(num_dst + 1,)``.
    indices
        int64, shape ``(nnz,)``, rows of the input of `aggregate`.
    values
        float32, shape ``(nnz,)``.
    num_src
        Number of rows that `aggregate` expects.
    degrees
        float32, shape ``(num_src,)``, or None: sum of each source's row in the *whole* graph (of an unweighted graph
        its number of in-neighbours), the targets first. ``values * degrees[row]`` then estimates the sum over all
        neighbours where ``values`` estimates their mean.
    exchange
        Of a cooperative batch what brings rows of other ranks here, else None; see `sources`.
    source_rows, owned_rows
        Of a cooperative batch whose rows the sources are, and those that `sources` takes: dropout by vertex needs them.
    vertices
        Ids of the sources in the graph, or None: `spsample.training.aggregate` reads their features.

    Examples
    --------
    >>> import torch
    >>> block = Block(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), torch.tensor([0.5, 0.5]), 2)
    >>> block.aggregate(torch.tensor([[1.0], [3.0]]))
    tensor([[2.],
            [0.]])
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    values: torch.Tensor
    num_src: int
    degrees: torch.Tensor | None = None
    exchange: Exchange | None = None
    source_rows: MaskedRows | None = None
    owned_rows: MaskedRows | None = None
    vertices: Any = None

    @property
    def target_rows(self) -> MaskedRows | None:
        """Whose rows the targets are, where that is known of the sources."""
        rows = self.source_rows
        return None if rows is None else replace(rows, vertices=rows.vertices[: self.num_dst])

    def sources(self, h: torch.Tensor) -> torch.Tensor:
        """Return the rows of all sources, from those that this rank has; call it once, before anything else.

        With batches of a rank's own, which is the rule, that is ``h`` itself. Of a cooperative batch ``h`` has the rows
        of the vertices that this rank owns, and the others come from other ranks: the call is collective, and so is
        its part in going back.
        """
        return h if self.exchange is None else self.exchange(h)

    @property
    def num_dst(self) -> int:
        """Number of target rows."""
        return len(self.indptr) - 1

    @property
    def rows(self) -> torch.Tensor:
        """The row of each entry: int64, shape ``(nnz,)``."""
        return torch.repeat_interleave(torch.arange(self.num_dst, device=self.indptr.device), self.indptr.diff())

    def require_degrees(self) -> torch.Tensor:
        """Return `degrees`.

        Raises
        ------
        InputError
            If the block was made without them; `BlockMaker` makes blocks with them.
        """
        if self.degrees is None:
            raise InputError(argument="block", given="no degrees", expected="a block with the degrees of its sources")
        return self.degrees

    def to(self, device: torch.device) -> Block:
        """A copy on a device; of tensors that are there, these."""
        return self.map_arrays(lambda tensor: tensor.to(device))

    def map_arrays(self, function: Callable[[Any], Any]) -> Block:
        """Return this block with what a function makes of each tensor, in a fixed order."""
        degrees = None if self.degrees is None else function(self.degrees)
        indptr, indices, values = (function(tensor) for tensor in (self.indptr, self.indices, self.values))
        return replace(self, indptr=indptr, indices=indices, values=values, degrees=degrees)

    def aggregate(self, h: torch.Tensor) -> torch.Tensor:
        """Return ``A h``: shape ``(num_src, dim)`` to ``(num_dst, dim)``; rows without entries are 0.

        Differentiable, and free of an ``nnz x dim`` temporary. Each row is added up in the order of its entries, and so
        is the gradient, on any number of threads.
        """
        require_exchanged(self.exchange)
        if self.values.requires_grad:
            entries = AttentionEntries(self.indptr, self.indices, self.num_src)
            return sum_by_head(entries, self.values.to(h.dtype)[:, None], h)
        return weighted_sums(self.indptr, self.indices, self.values, h)

    def with_targets(self, h: torch.Tensor) -> torch.Tensor:
        """Return ``[h_targets | A h]``: shape ``(num_src, dim)`` to ``(num_dst, 2 dim)``, in one pass.

        One product with ``[W_self | W_neigh]`` then makes a layer of GraphSAGE of it. The targets have to be the first
        sources.
        """
        require_exchanged(self.exchange)
        return with_targets(self.indptr, self.indices, self.values, h)

    def sums_first(self, in_dim: int, out_dim: int) -> bool:
        """Return whether ``(A h) W`` takes less work than ``A (h W)``, by the counts of sources, targets and entries.

        W has shape ``(in_dim, out_dim)``. Where there are many more sources than targets the sum comes first even if W
        makes rows narrower.
        """
        products = (self.num_src - self.num_dst) * in_dim * out_dim
        return products >= _PRODUCTS_OF_A_SUM * len(self.indices) * (in_dim - out_dim)


def mean_block(adj: Any) -> Block:
    """Block that takes the mean over each row's entries (weighted by ``adj.data`` where there is one).

    For node-wise samplers. ``adj`` needs ``indptr, indices, data, shape`` as in ``mb.layers[l].adj``.
    """
    if not _is_on_host(adj.indices):
        return _block(adj, _means_on_device(adj))
    counts = np.diff(np.asarray(adj.indptr))
    if adj.data is None:
        values: NDArray[Any] = np.repeat(_inverse(counts).astype(np.float32), counts)
    else:
        weights = np.asarray(adj.data)
        totals = sums_by_row(np.asarray(adj.indptr), weights)
        values = weights * np.repeat(_inverse(totals), counts)
    return _block(adj, values)


def value_block(adj: Any) -> Block:
    """Block that sums with the values the sampler gave: a layer-wise sampler's estimate of ``A h``."""
    if adj.data is None:
        return _block(adj, torch.ones(len(adj.indices), device=as_tensor(adj.indptr).device))
    return _block(adj, adj.data)


def _is_on_host(array: Any) -> bool:
    return isinstance(array, np.ndarray) or (isinstance(array, torch.Tensor) and array.is_cpu)


def _means_on_device(adj: Any) -> torch.Tensor:
    """The values of `mean_block`, computed where the arrays are."""
    counts = as_tensor(adj.indptr).diff()
    rows = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=adj.nnz)
    if adj.data is None:
        return (1.0 / counts.clamp(min=1).double())[rows]
    weights = as_tensor(adj.data).double()
    totals = torch.zeros(len(counts), dtype=torch.float64, device=counts.device).index_add_(0, rows, weights)
    inverse = torch.where(totals > 0, 1.0 / totals, 0.0)
    return weights * inverse[rows]


class BlockMaker:
    """Make blocks of sampled layers that all estimate the mean over the neighbours, with the degrees beside it.

    Making one on a distributed graph is collective: every rank keeps the degrees of all vertices, 4 bytes each.

    Parameters
    ----------
    graph
        The graph whose neighbourhoods the layers sample, before any normalisation.
    sampler
        Says how its layers are read: `Sampler.aggregation`.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 0, 2]], num_nodes=4)
    >>> sampler = sp.GraphSAGE([2])
    >>> batch = sp.bulk_sample(graph, [0, 2], sampler, batch_size=2)[0]
    >>> block = BlockMaker(graph, sampler)(batch.layers[0])
    >>> block.values, block.degrees[:2]
    (tensor([0.5000, 0.5000, 1.0000]), tensor([3., 1.]))
    """

    def __init__(self, graph: BaseGraph, sampler: Sampler) -> None:
        require_sampler(sampler)
        self._degrees = weighted_degrees(graph)
        self._degrees_on_device: torch.Tensor | None = None  # the degrees once more, where layers are on a device
        self._make = _MAKERS[aggregation_for(sampler)]
        self._channel = Channel(graph.comm)

    def step(self) -> AbstractContextManager[None]:
        """Around the forward and backward pass of a cooperative batch: where one rank fails, all do. Collective."""
        return collective(self._channel.scope, self._channel, call="a training step")

    def whole_rows(self) -> BlockMaker:
        """A maker of blocks for whole rows, of which the mean is taken."""
        other = copy.copy(self)
        other._make = mean_block
        return other

    def __call__(self, layer: Any) -> Block:
        """Return the block of one of ``minibatch.layers``, where its arrays are."""
        require_type("layer", getattr(layer, "adj", None), Adjacency, "one of minibatch.layers")
        block = self._make(layer.adj)
        routes = getattr(layer, "routes", None)
        if routes is not None:
            block = replace(block, exchange=Exchange(routes, self._channel))
        block = replace(block, vertices=layer.src_nodes)
        if block.indices.is_cpu and isinstance(layer.src_nodes, np.ndarray):
            return replace(block, degrees=as_tensor(self._degrees.take(layer.src_nodes)))
        if self._degrees_on_device is None:
            self._degrees_on_device = as_tensor(self._degrees).to(block.indices.device)
        return replace(block, degrees=self._degrees_on_device[as_tensor(layer.src_nodes).long()])

    def inputs(
        self, batch: Batch, model: torch.nn.Module, dropout: DropoutKey | None = None
    ) -> tuple[torch.Tensor, list[Block]]:
        """Features and blocks of a batch where the model is, which may not be where they were made.

        With a key dropout is by vertex: see `VertexDropout`.
        """
        device = next(model.parameters()).device
        blocks = [self(layer).to(device) for layer in batch.layers]
        if dropout is not None:
            blocks = [_named(block, layer, batch, dropout) for block, layer in zip(blocks, batch.layers, strict=True)]
        return as_tensor(batch.x).to(device), blocks


def _named(block: Block, layer: Any, batch: Batch, key: DropoutKey) -> Block:
    """Return a block with the vertices of its rows, and the key of their masks."""
    routes = getattr(layer, "routes", None)
    owned = layer.src_nodes if routes is None else batch.src_nodes[: routes.owned]
    return replace(block, source_rows=MaskedRows(layer.src_nodes, key), owned_rows=MaskedRows(owned, key))


def aggregation_for(sampler: Sampler) -> str:
    """Return how a model aggregates what ``sampler`` gives, as it states: the ``"mean"``, or by the ``"values"``.

    Raises
    ------
    InputError, DTypeError
        If it states anything else.
    """
    return require_choice("sampler.aggregation", sampler.aggregation, tuple(_MAKERS))


def weighted_degrees(graph: BaseGraph) -> NDArray[np.float32]:
    """Return the sum of each row of the graph, float32, shape ``(num_nodes,)``; collective on a distributed graph.

    Raises
    ------
    DTypeError
        If it is no graph.
    InputError
        If the graph has weights that lie on a device only.
    """
    require_graph(graph)
    return graph.row_sums()


_MAKERS: dict[str, Callable[[Any], Block]] = {"mean": mean_block, "values": value_block}


def _block(adj: Any, values: Any) -> Block:
    return Block(
        indptr=as_tensor(adj.indptr),
        indices=as_tensor(adj.indices).long(),
        values=(values if isinstance(values, torch.Tensor) else as_tensor(values)).float(),
        num_src=int(adj.shape[1]),
    )


def _inverse(totals: NDArray[Any]) -> NDArray[np.float64]:
    """``1 / totals``, and 0 where the total is 0."""
    result: NDArray[np.float64] = np.zeros(len(totals), dtype=np.float64)
    np.divide(1.0, totals, out=result, where=totals > 0)
    return result
