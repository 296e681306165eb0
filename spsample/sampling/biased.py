"""`Biased`: a node-wise sampler that prefers some neighbours, those whose features are near."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnScale
from spsample.common.arrays import as_array
from spsample.common.checks import require_int, require_number, require_type
from spsample.common.contents import contents_of
from spsample.common.memory import available_memory
from spsample.errors import InputError
from spsample.sampling.bulk_layer import BulkLayer
from spsample.sampling.sampler import Aggregation, Kind, Layout, Sampler, require_bool
from spsample.sparse import Draw, ExtractOptions, GraphOperand, RowSelector, ScaledOperand, StackedLayer
from spsample.store.validation import as_id_vector

LARGEST_FACTOR = 2.0**64


class Biased(Sampler):
    """Locality-aware sampling: neighbours in a set weigh `factor` times as much when a vertex draws.

    The set is that of the vertices whose features are cached: the larger the factor, the fewer rows are fetched, and
    the farther the draw is from that of `sampler`. P = NORM(Q A D), where D is diagonal, `factor` for the vertices of
    the set and 1 for the others; A D is never formed. With factor 1 samples and values are those of `sampler`
    to the bit, with importance weights too: there is no preference to undo.

    Parameters
    ----------
    sampler : Sampler
        A node-wise one, such as `GraphSAGE`.
    cached : CachedFeatures, or array-like
        What is preferred: ids of vertices, a mask over all of them, or what has `cached_vertices`. Copied: one bit for
        each vertex. A cache that changes is taken as it is now. On several ranks it must be equal on all of them, as
        the sampler.
    factor : float
        Above 0 and at most 2^64; 2, 4, 8, ... in the paper. Below 1 the vertices of the set are avoided.
    rank : int, optional
        Ranks prefer each what they have: `cached` is a list of such sets, one for each rank, the same on all, and this
        the rank that samples. A `CopyPlan` has such a list, ``plan.vertices``. For graphs replicated over ranks; on
        block rows, whose owners draw for all, the sets have to be equal.
    importance_weights : bool
        Values of a layer (`adj.data`) undo the preference: a row's values are weights of an unbiased estimate of its
        sum over all neighbours (Des Raj's; Hansen and Hurwitz's with replacement), which a mean aggregation divides by
        their sum. For graphs in memory and replicated ones.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.

    References
    ----------
    Song and Jiang, "Rethinking graph data placement for graph neural network training on multiple GPUs", ICS 2022,
    locality-aware neighbour sampling.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph([0, 4, 4, 4, 4, 4], [1, 2, 3, 4])
    >>> sampler = Biased(sp.GraphSAGE([1]), [3], factor=1e12)
    >>> sp.bulk_sample(graph, [0], sampler, batch_size=1)[0].src_nodes.tolist()
    [0, 3]
    """

    def __init__(
        self,
        sampler: Sampler,
        cached: Any,
        factor: float,
        *,
        rank: int | None = None,
        importance_weights: bool = False,
    ) -> None:
        require_type("sampler", sampler, Sampler, "a Sampler")
        self.sampler = sampler
        super().__init__(sampler.sizes, replace=sampler.replace, include_targets=sampler.include_targets)
        if sampler.kind != "node-wise":
            raise InputError(
                argument="sampler",
                given=f"{sampler!r}, which draws for whole batches",
                expected="a node-wise sampler, such as GraphSAGE",
            )
        if isinstance(sampler, Biased):
            raise InputError(argument="sampler", given=repr(sampler), expected="a sampler that is not Biased itself")
        self.layout: Layout = sampler.layout
        self.factor = require_number(
            "factor", factor, lambda x: 0 < x <= LARGEST_FACTOR, "a number above 0, at most 2^64"
        )
        self.importance_weights = require_bool("importance_weights", importance_weights)
        if rank is None:
            sets = [members_of(cached)]
        else:
            require_type("cached", cached, (list, tuple), "a list with a set of vertices for each rank")
            rank = require_int("rank", rank, minimum=0, maximum=len(cached) - 1)
            sets = [members_of(of_rank) for of_rank in cached]
        members, digests = sets[rank or 0], [f"{contents_of(one):016x}" for one in sets]
        self._is_one_set = len(set(digests)) == 1
        self._digest = digests[0] if self._is_one_set else f"{contents_of(digests):016x}"
        self._largest = _largest(members)
        self._scale = ColumnScale(members, self.factor)

    @property
    def aggregation(self) -> Aggregation:  # type: ignore[override]
        """As of the sampler."""
        return self.sampler.aggregation

    @property
    def kind(self) -> Kind:
        """Each vertex draws for itself."""
        return self.sampler.kind

    def members(self, num_nodes: int) -> NDArray[np.bool_]:
        """(num_nodes,) which vertices are in the set.

        Examples
        --------
        >>> import spsample as sp
        >>> Biased(sp.GraphSAGE([1]), [1], 2).members(3).tolist()
        [False, True, False]
        """
        return np.unpackbits(self._scale.members.view(np.uint8), count=num_nodes, bitorder="little").astype(np.bool_)

    def layer(self, A: GraphOperand, Q: RowSelector, draw: Draw, options: ExtractOptions) -> StackedLayer:
        """A layer of the sampler, drawn from A D."""
        return self.sampler.layer(self._scaled(A), Q, draw, options)

    def run(self, A: GraphOperand, Q: RowSelector, key: tuple[int, int], edge_ids: bool) -> list[BulkLayer]:
        """A^1 .. A^L of all batches, drawn from A D."""
        return self.sampler.run(self._scaled(A), Q, key, edge_ids)

    def _scaled(self, A: GraphOperand) -> GraphOperand:
        """A D in place of A."""
        if self._largest >= A.num_nodes:
            raise InputError(
                argument="cached",
                given=f"vertex {self._largest}",
                expected=f"vertices of the graph: below {A.num_nodes}",
            )
        if self.factor == 1.0:
            return A
        if not (self._is_one_set or A.draws_here):
            given = "sets of vertices that differ by rank, on a graph in block rows, whose owners draw for all"
            hint = "Replicate the graph (ReplicatedGraph, --replicated)."
            raise InputError(argument="cached", given=given, expected="one set for all ranks", hint=hint)
        return ScaledOperand(A, self._scale, A.row_totals(self._scale) if self.importance_weights else None)

    def with_sizes(self, sizes: Sequence[int]) -> Biased:
        """Return the sampler with other sizes, the same set and factor."""
        sampler, other = self.sampler.with_sizes(sizes), copy(self)
        vars(other).update(sampler=sampler, sizes=sampler.sizes)  # past the guard of samplers, which never change
        return other

    def options(self) -> dict[str, Any]:
        """Options that tell it from others of the same sizes: its sampler, factor and set, the latter by its digest."""
        return {
            "sampler": self.sampler,
            "factor": self.factor,
            "importance_weights": self.importance_weights,
            "cached": self._digest,
        }

    def __repr__(self) -> str:
        count = int(np.bitwise_count(self._scale.members).sum()) if len(self._scale.members) else 0
        vertices = f"{count:,} vertices" if self._is_one_set else "a set for each rank"
        importance = ", importance_weights=True" if self.importance_weights else ""
        return f"Biased({self.sampler!r}, {vertices} ({self._digest}), factor={self.factor:g}{importance})"


def members_of(cached: Any) -> NDArray[np.uint64]:
    """A bit for each vertex: whether it is in the set.

    Examples
    --------
    >>> members_of([0, 65]).tolist(), members_of([False, True, True]).tolist()
    ([1, 2], [6])
    """
    given = as_array("cached", getattr(cached, "cached_vertices", cached))
    if given.dtype.kind == "b" and given.ndim == 1:
        given = np.flatnonzero(given)
    ids = as_id_vector("cached", given if given.size or given.ndim != 1 else given.astype(np.int64))
    if ids.size and ids.min() < 0:
        raise InputError(argument="cached", given=f"vertex {ids.min()}", expected="ids of at least 0")
    largest = int(ids.max(initial=-1))
    if largest // 8 > available_memory():
        raise InputError(argument="cached", given=f"vertex {largest}", expected="ids for which memory has a bit each")
    members = np.zeros(max(largest, 0) // 64 + 1, np.uint64)  # a word at least: NumPy unpacks no bits of none
    np.bitwise_or.at(members, ids // 64, np.uint64(1) << (ids % 64).astype(np.uint64))
    return members


def _largest(members: NDArray[np.uint64]) -> int:
    """The largest id of the set, -1 of an empty one."""
    bits = np.flatnonzero(np.unpackbits(members[-1:].view(np.uint8), bitorder="little"))
    return (len(members) - 1) * 64 + int(bits[-1]) if len(bits) else -1
