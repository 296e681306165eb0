"""Sampled layers as torch operators: one weighted sum over the in-neighbours of each target.

Of a batch that ranks share, rows of activations go to those who need them, and gradients come back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spsample.comm import Channel, Sent, collective
from spsample.common.checks import require_choice, require_type
from spsample.common.threads import compiled_core
from spsample.distributed.cooperative import Routes
from spsample.errors import DTypeError, InputError
from spsample.features import FeatureSource, FeatureStore
from spsample.loading import Batch
from spsample.nn.dropout import DropoutKey, MaskedRows
from spsample.nn.sums import AttentionEntries, Sums, is_differentiated, sum_by_head, summed, weighted_sums, with_targets
from spsample.nn.tensors import as_array, as_tensor
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
    is_on_host = isinstance(adj.indices, np.ndarray) or getattr(adj.indices, "is_cpu", False)
    if not is_on_host:
        return _block(adj, _means_on_device(adj))
    indptr = np.asarray(adj.indptr)
    counts = np.diff(indptr)
    totals = counts if adj.data is None else sums_by_row(indptr, np.asarray(adj.data))
    inverse = np.zeros(len(totals))
    np.divide(1.0, totals, out=inverse, where=totals > 0)
    if adj.data is None:
        return _block(adj, np.repeat(inverse.astype(np.float32), counts))
    return _block(adj, np.repeat(inverse, counts) * np.asarray(adj.data))


def _means_on_device(adj: Any) -> torch.Tensor:
    """The values of `mean_block`, computed where the arrays are."""
    counts = as_tensor(adj.indptr).diff()
    rows = torch.arange(len(counts), device=counts.device)
    rows = torch.repeat_interleave(rows, counts, output_size=len(adj.indices))  # does not wait for the size
    totals = counts.double()
    if adj.data is not None:
        totals = torch.zeros_like(totals).index_add_(0, rows, as_tensor(adj.data).double())
    inverse = torch.where(totals > 0, 1.0 / totals, 0.0)[rows]
    return inverse if adj.data is None else inverse * as_tensor(adj.data)


def value_block(adj: Any) -> Block:
    """Block that sums with the values the sampler gave: a layer-wise sampler's estimate of ``A h``."""
    if adj.data is None:
        return _block(adj, torch.ones(len(adj.indices), device=as_tensor(adj.indptr).device))
    return _block(adj, adj.data)


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
        require_graph(graph)
        self._degrees = graph.row_sums()
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

    def of_part(self, original_ids: NDArray[np.int64]) -> BlockMaker:
        """A maker of blocks of another graph, whose vertices have these ids here: degrees are those of this graph."""
        other = copy.copy(self)
        other._degrees, other._degrees_on_device = self._degrees[original_ids], None
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
        blocks = []
        for layer in batch.layers:
            block = self(layer).to(device)
            if dropout is not None:
                routes = getattr(layer, "routes", None)
                owned = layer.src_nodes if routes is None else batch.src_nodes[: routes.owned]
                rows = MaskedRows(layer.src_nodes, dropout)
                block = replace(block, source_rows=rows, owned_rows=MaskedRows(owned, dropout))
            blocks.append(block)
        return as_tensor(batch.x).to(device), blocks


def aggregation_for(sampler: Sampler) -> str:
    """Return how a model aggregates what ``sampler`` gives, as it states: the ``"mean"``, or by the ``"values"``.

    Raises
    ------
    InputError, DTypeError
        If it states anything else.
    """
    return require_choice("sampler.aggregation", sampler.aggregation, tuple(_MAKERS))


_MAKERS: dict[str, Callable[[Any], Block]] = {"mean": mean_block, "values": value_block}


def _block(adj: Any, values: Any) -> Block:
    return Block(
        indptr=as_tensor(adj.indptr),
        indices=as_tensor(adj.indices).long(),
        values=as_tensor(values).float(),
        num_src=int(adj.shape[1]),
    )


# --------------------------------------------------------------------------------- rows that are read where they lie


_REUSE = 5
"""Entries per source from which on rows are gathered first: they are read from memory once then."""


def aggregate(block: Block, source: Any) -> torch.Tensor:
    """Return ``A x`` of a block and the rows x of its sources, read where they lie: shape ``(num_dst, dim)``, float32.

    Where the block has at most five times as many entries as sources, and the rows lie in memory as float32, they are
    added up on the way, and the rows of the sources are never written out. Else they are gathered first. The result is
    the same to the bit.

    Parameters
    ----------
    block
        Made by a `BlockMaker` of a layer whose sources are known: of a batch of one's own, not a cooperative one.
    source
        A row for each vertex of the graph: a `FeatureSource`, an array or SciPy CSR matrix of features; or a torch
        tensor, such as the weight of an embedding, through which gradients flow where it asks for them (``A^T g``). No
        gradient flows to the rows of a feature source.

    Raises
    ------
    InputError
        If the block does not know its sources, a source has too few rows, or a tensor does not have two dimensions.

    Examples
    --------
    >>> import numpy as np, spsample as sp
    >>> from spsample.training import BlockMaker
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 0, 2]], num_nodes=4)
    >>> sampler = sp.GraphSAGE([-1])
    >>> block = BlockMaker(graph, sampler)(sp.bulk_sample(graph, [0, 2], sampler, batch_size=2)[0].layers[0])
    >>> aggregate(block, np.array([[1.0], [2.0], [3.0], [7.0]], np.float32))
    tensor([[4.],
            [1.]])
    """
    require_type("block", block, Block, "a block of a BlockMaker")
    if block.vertices is None or block.exchange is not None:
        given, expected = "one that does not know its sources", "one of a BlockMaker, of one rank"
        raise InputError(argument="block", given=given, expected=expected)
    vertices = as_array(as_tensor(block.vertices).cpu())
    if isinstance(source, torch.Tensor):
        return block.aggregate(_rows_of(source, vertices))
    features = source if isinstance(source, FeatureSource) else FeatureStore(source)
    rows = _rows_as_they_lie(features)
    is_reused = len(block.indices) > _REUSE * block.num_src
    is_for_core = block.indices.is_cpu and not is_differentiated(block.values) and compiled_core() is not None
    if rows is None or is_reused or not is_for_core:
        return block.aggregate(as_tensor(features.gather(vertices)).to(block.indices.device))
    if len(vertices) and int(vertices.max()) >= len(rows):
        raise InputError(argument="source", given=f"{len(rows)} rows", expected="one row per vertex")
    columns = vertices[as_array(block.indices)].astype(np.int64, copy=False)
    values = as_array(block.values).astype(np.float32, copy=False)
    return summed(Sums(as_array(block.indptr), columns, values, len(rows)), rows)


def _rows_as_they_lie(features: FeatureSource) -> NDArray[np.float32] | None:
    """The rows of a source in memory, where they are float32 in C order; else None."""
    reader = features.rows_in_memory
    rows = None if reader is None else reader.rows
    if type(rows) is not np.ndarray or rows.dtype != np.float32 or not (rows.flags.c_contiguous and rows.flags.aligned):
        return None
    return rows


def _rows_of(table: torch.Tensor, vertices: NDArray[Any]) -> torch.Tensor:
    if table.ndim != 2:
        raise InputError(argument="source", given=f"{table.ndim} dimensions", expected="two: a row per vertex")
    if not table.is_floating_point():
        raise DTypeError(argument="source", given=f"dtype {table.dtype}", expected="a tensor of floating-point numbers")
    if len(vertices) and int(vertices.max()) >= len(table):
        raise InputError(argument="source", given=f"{len(table)} rows", expected="one row per vertex")
    return table.index_select(0, torch.from_numpy(vertices.astype(np.int64)).to(table.device))


# ----------------------------------------------------------------------------------------------- rows of other ranks


class Exchange:
    """The rows of a layer's sources, from those of the vertices that each rank owns; differentiable, and collective.

    Each distinct row goes once to each rank that needs it, and its gradient comes back once. Gradients are added in the
    order of the ranks: the same bits in every run.

    Parameters
    ----------
    routes : Routes
        Whose rows go where.
    channel : Channel
        Over all ranks. Phases "batch activations" and "batch gradients".

    Attributes
    ----------
    is_done : bool
        Whether it was called.

    References
    ----------
    M. F. Balin, D. LaSalle and U. V. Catalyurek, Cooperative minibatching in graph neural networks, TMLR 2025.

    Examples
    --------
    >>> from spsample.comm import LocalCommunicator
    >>> from spsample.distributed.cooperative import Routes
    >>> none = np.zeros(1, np.int64)
    >>> routes = Routes(3, np.array([2, 0], np.int32), np.zeros(0, np.int32), none, none)
    >>> Exchange(routes, Channel(LocalCommunicator()))(torch.tensor([[1.0], [2.0], [3.0]]))
    tensor([[3.],
            [1.]])
    """

    def __init__(self, routes: Routes, channel: Channel) -> None:
        self._routes, self._channel = routes, channel
        self.is_done = False

    def __call__(self, h: torch.Tensor) -> torch.Tensor:
        """Return the rows of the sources: shape (owned, dim) to (num_src, dim).

        Raises
        ------
        InputError
            If there is not one row for each vertex of the layer that this rank owns.
        """
        if h.ndim != 2 or len(h) != self._routes.owned:
            expected = f"a row for each vertex that this rank owns: ({self._routes.owned}, dim)"
            raise InputError(argument="h", given=f"shape {tuple(h.shape)}", expected=expected)
        self.is_done = True
        sources: torch.Tensor = _Exchanged.apply(h, self._routes, self._channel)  # type: ignore[no-untyped-call]
        return sources


class _Exchanged(torch.autograd.Function):
    """The exchange and its transpose."""

    @staticmethod
    def forward(ctx: Any, h: torch.Tensor, routes: Routes, channel: Channel) -> torch.Tensor:
        ctx.routes, ctx.channel = routes, channel
        sent = h.index_select(0, _places(routes.send, h))
        received = _moved(sent, routes.send_counts, channel, "batch activations")
        return torch.cat([h.index_select(0, _places(routes.own, h)), received])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        routes, owned = ctx.routes, len(ctx.routes.own)
        back = _moved(g[owned:], routes.recv_counts, ctx.channel, "batch gradients")
        total = g.new_zeros(routes.owned, g.shape[1])
        total[_places(routes.own, g)] = g[:owned]
        send, counts = _places(routes.send, g), routes.send_counts.tolist()
        for places, rows in zip(torch.split(send, counts), torch.split(back, counts), strict=True):
            total[places] += rows  # places of one rank are distinct
        return total, None, None


def _places(places: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.asarray(places, np.int64)).to(like.device)


def _moved(rows: torch.Tensor, counts: Any, channel: Channel, phase: str) -> torch.Tensor:
    """Send rows rank by rank, and return those that came, wherever the model is."""
    host = rows.detach().cpu().contiguous()
    row_bytes = host.element_size() * host.shape[1]
    as_bytes = host.reshape(-1).view(torch.uint8).numpy().reshape(len(host), row_bytes)  # whatever its type
    moved = channel.exchange([Sent(as_bytes, counts)], phase=phase)[0].rows
    return torch.from_numpy(moved.reshape(-1)).view(rows.dtype).reshape(-1, rows.shape[1]).to(rows.device)


def require_exchanged(*exchanges: Exchange | None) -> None:
    """Refuse a forward pass that did not exchange the rows of each block's sources: it computes something else.

    Raises
    ------
    InputError

    Examples
    --------
    >>> require_exchanged(None, None)  # of batches of a rank's own
    """
    if any(exchange is not None and not exchange.is_done for exchange in exchanges):
        raise InputError(
            argument="model",
            given="a forward pass that did not call block.sources in each layer",
            expected="h = block.sources(h) once in each layer, before its convolution",
            hint="GNN.forward does so. Other models work with batches of each rank's own.",
        )
