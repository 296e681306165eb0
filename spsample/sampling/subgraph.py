"""The subgraph layout: each vertex is drawn once, at the hop that found it; layers are unions of hops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.backends import UnitedHops
from spsample.backends.hops import Hop, entry_pointers, row_pointers, side_by_side
from spsample.backends.protocol import Int64Array, IntArray
from spsample.sampling.bulk_layer import BulkLayer, Ranges
from spsample.sparse import (
    Draw,
    ExtractOptions,
    GraphOperand,
    RowSelector,
    extract,
    its_sample,
    normalize_rows,
)

if TYPE_CHECKING:
    from spsample.sampling.graphsage import GraphSAGE


def run_subgraph(
    sampler: GraphSAGE, A: GraphOperand, Q: RowSelector, key: tuple[int, int], edge_ids: bool
) -> list[BulkLayer]:
    """A^1 .. A^L of all batches, layer 1 first: prefixes of one stacked matrix per batch."""
    draws = [Draw(key, hop, s, sampler.replace) for hop, s in enumerate(sampler.sizes)]
    together = normalize_rows(sampler.product(A, Q)).sample_hops(draws, edge_ids)
    if together is not None:
        return _Union.of_hops(*together).layers()
    return _drawn_one_by_one(sampler, A, Q, draws, edge_ids).layers()


def _drawn_one_by_one(sampler: GraphSAGE, A: GraphOperand, Q: RowSelector, draws: list[Draw], edge_ids: bool) -> _Union:
    """The hops, each in the words of the algebra."""
    options = ExtractOptions(True, edge_ids)
    known = fresh = Q
    known_ptr = [Q.batch_ptr]  # of the vertices known before each hop, and after the last
    hops: list[Hop] = []
    for draw in draws:
        if hops:
            fresh = RowSelector(*A.backend.appended(known_ptr[-2], known_ptr[-1], known.vertices), Q.batch_ids)
        P = normalize_rows(sampler.product(A, fresh))
        S = its_sample(P, draw, edge_ids=edge_ids)
        layer = extract(S, options, known)
        hops.append(Hop(layer.rows, data=layer.data, edge_ids=layer.edge_ids))
        known = layer.next_selector()
        known_ptr.append(known.batch_ptr)
        del P, S, layer  # with the vertices of earlier hops, which are among those of later ones
    del fresh
    edge_ids_of_all, data, columns = (side_by_side(A.backend, hops, name) for name in ("edge_ids", "data", "columns"))
    indptr = row_pointers(A.backend, hops)
    return _Union(known_ptr, entry_pointers(hops), known.vertices, indptr, columns, data, edge_ids_of_all)


class _Union(NamedTuple):
    """One CSR per batch over all hops' rows; layer l uses its first hops."""

    known_ptr: Sequence[Int64Array]  # of the vertices known before each hop, and after the last
    entry_ptr: Sequence[Int64Array]  # entries of the first hops, of each batch and those before it
    known: IntArray
    indptr: Int64Array
    indices: IntArray
    data: Any
    edge_ids: Int64Array | None

    @classmethod
    def of_hops(cls, hops: UnitedHops, edge_ids: Int64Array | None) -> _Union:
        """Make one of hops that were drawn together."""
        return cls(hops.known_ptr, hops.entry_ptr, hops.known, hops.indptr, hops.columns, None, edge_ids)

    def layers(self) -> list[BulkLayer]:
        """Layer 1, of all hops, first."""
        every_vertex, every_row, every_entry = self.known_ptr[-1], self.known_ptr[-2], self.entry_ptr[-1]
        dst = Ranges(every_vertex, self.known_ptr[0])
        layers = []
        for dst_ptr, src_ptr, entry_ptr in zip(self.known_ptr, self.known_ptr[1:], self.entry_ptr, strict=False):
            src = Ranges(every_vertex, src_ptr)
            rows, entries = Ranges(every_row, dst_ptr, more=1), Ranges(every_entry, entry_ptr)
            csr = (self.indptr, rows, self.indices, self.data, self.edge_ids, entries)
            layers.append(BulkLayer(self.known, dst, self.known, src, *csr))
            dst = src
        return layers[::-1]
