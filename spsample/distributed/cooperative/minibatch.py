"""A rank's part of a cooperative minibatch: its rows of A^1 .. A^L, and the owners of the other rows they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.backends.protocol import Int64Array, IntArray
from spsample.common.arrays import distinct_bytes
from spsample.common.units import count
from spsample.sampling.bulk import Adjacency

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Routes(NamedTuple):
    """The origin of the rows of a layer's sources: first this rank's own, then those of ranks 0, 1, ... in turn.

    Attributes
    ----------
    owned : int
        Vertices of the layer that this rank owns: it has their rows, in the order of `CooperativeMiniBatch.src_nodes`.
    own : int array
        Places among them of those that are sources here; the targets come first.
    send : int array
        Places among them of those that other ranks need, rank by rank.
    send_counts, recv_counts : int64 array (p,)
        Rows that go to each rank, and that come from it.
    """

    owned: int
    own: IntArray
    send: IntArray
    send_counts: Int64Array
    recv_counts: Int64Array


@dataclass(frozen=True, eq=False)
class CooperativeLayer:
    """A rank's rows of one layer: targets it owns, and the sources that these need, of any owner.

    Attributes
    ----------
    adj : Adjacency
        Rows ``dst_nodes``, columns ``src_nodes``.
    dst_nodes, src_nodes : int array
        Global ids. The targets come first among the sources, then other vertices of this rank, then those of others.
    edge_ids : int64 array or None
        None where they were not asked for.
    routes : Routes
        The origin of the rows of the sources.
    """

    adj: Adjacency
    dst_nodes: IntArray
    src_nodes: IntArray
    edge_ids: Int64Array | None
    routes: Routes

    def map_arrays(self, function: Callable[[Any], Any]) -> CooperativeLayer:
        """Return this layer with what a function makes of each array but the routes, in a fixed order."""
        edge_ids = None if self.edge_ids is None else function(self.edge_ids)
        dst, src = function(self.dst_nodes), function(self.src_nodes)
        return CooperativeLayer(self.adj.map_arrays(function), dst, src, edge_ids, self.routes)


@dataclass(frozen=True, eq=False)
class CooperativeMiniBatch:
    """A rank's part of a minibatch that all ranks share.

    The ranks' rows together are those of the minibatch that one rank would have sampled, each once.

    Attributes
    ----------
    batch_id : int
        Global batch id.
    seeds : int array
        Distinct seeds that this rank owns, in the order of the batch.
    seed_places : int array
        For each of `seeds` its place among the seeds given for the whole batch; of a repeated one the first.
    num_seeds : int
        Distinct seeds of the whole batch.
    src_nodes : int array
        Vertices whose features this rank fetches: those of layer 1 that it owns. Those that a later layer needs are
        the first of them.
    layers : list of CooperativeLayer
        Layer 1 first.
    """

    batch_id: int
    seeds: IntArray
    seed_places: IntArray
    num_seeds: int
    src_nodes: IntArray
    layers: list[CooperativeLayer]

    def map_arrays(self, function: Callable[[Any], Any]) -> CooperativeMiniBatch:
        """Return this minibatch with what a function makes of each array, in a fixed order.

        `seed_places` and the routes stay as they are: ranks exchange rows through the memory of the host.
        """
        layers = [layer.map_arrays(function) for layer in self.layers]
        return replace(self, seeds=function(self.seeds), src_nodes=function(self.src_nodes), layers=layers)

    def __repr__(self) -> str:
        shapes = " ".join("x".join(map(str, layer.adj.shape)) for layer in self.layers)
        seeds = f"{len(self.seeds)} of {self.num_seeds}"
        return f"CooperativeMiniBatch(batch_id={self.batch_id}, seeds={seeds}, layers=[{shapes}])"


class CooperativeBulk:
    """A rank's parts of all minibatches of a bulk, by batch id.

    Examples
    --------
    >>> len(CooperativeBulk([]))
    0
    """

    def __init__(self, minibatches: list[CooperativeMiniBatch]) -> None:
        self._minibatches = minibatches

    def __len__(self) -> int:
        return len(self._minibatches)

    def __getitem__(self, i: int) -> CooperativeMiniBatch:
        return self._minibatches[i]

    def __iter__(self) -> Iterator[CooperativeMiniBatch]:
        return iter(self._minibatches)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of all minibatches, each array once."""
        return distinct_bytes(array for minibatch in self._minibatches for array in _arrays(minibatch))

    def __repr__(self) -> str:
        return f"CooperativeBulk({count(len(self), 'minibatch', 'minibatches')})"


def _arrays(minibatch: CooperativeMiniBatch) -> Iterator[NDArray[Any] | None]:
    yield from (minibatch.seeds, minibatch.seed_places, minibatch.src_nodes)
    for layer in minibatch.layers:
        adj, routes = layer.adj, layer.routes
        yield from (adj.indptr, adj.indices, adj.data, layer.dst_nodes, layer.src_nodes, layer.edge_ids)
        yield from (routes.own, routes.send, routes.send_counts, routes.recv_counts)
