"""The subgraph layout: each vertex is drawn once, at the hop that found it; layers are unions of hops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.backends import Backend, UnitedHops
from spsample.backends.protocol import Int64Array, IntArray
from spsample.sampling.bulk_layer import BulkLayer, Ranges
from spsample.sparse import (
    Draw,
    ExtractOptions,
    GraphOperand,
    RowSelector,
    StackedLayer,
    extract_rows,
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
    hops: list[_Hop] = []
    for draw in draws:
        if hops:
            fresh = RowSelector(*A.backend.appended(known_ptr[-2], known_ptr[-1], known.vertices), Q.batch_ids)
        P = normalize_rows(sampler.product(A, fresh))
        S = its_sample(P, draw, edge_ids=edge_ids)
        layer = extract_rows(P, S, options, known)
        hops.append(_Hop(layer))
        known = layer.next_selector()
        known_ptr.append(known.batch_ptr)
        del P, S, layer  # with the vertices of earlier hops, which are among those of later ones
    del fresh
    return _united(A.backend, hops, known_ptr, known.vertices)


class _Hop:
    """What the union is made of: pointers of the hop's rows and entries, and its arrays, each to be taken once."""

    def __init__(self, layer: StackedLayer) -> None:
        self.batch_ptr = layer.rows.batch_ptr
        self.entry_ptr = layer.rows.entry_ptr
        self._arrays = {
            "indptr": layer.rows.indptr,
            "columns": layer.rows.columns,
            "data": layer.data,
            "edge_ids": layer.edge_ids,
        }

    def take(self, name: str) -> Any:
        """The array, or None; it is not held here any longer."""
        return self._arrays.pop(name)


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


def _united(backend: Backend, hops: list[_Hop], known_ptr: list[Int64Array], known: IntArray) -> _Union:
    """One kind of array after the other, the longest first: beside the result there is that one once more at most."""
    entry_ptr = [hop.entry_ptr for hop in hops]
    edge_ids = _gathered(backend, [hop.take("edge_ids") for hop in hops], entry_ptr)
    data = _gathered(backend, [hop.take("data") for hop in hops], entry_ptr)
    indices: Any = backend.interleave([hop.take("columns") for hop in hops], entry_ptr)
    indptr = backend.interleave_pointers([hop.take("indptr") for hop in hops], [hop.batch_ptr for hop in hops])
    return _Union(known_ptr, list(accumulate(entry_ptr)), known, indptr, indices, data, edge_ids)


def _gathered(backend: Backend, parts: list[Any], pointers: list[Int64Array]) -> Any:
    """The hops' arrays as one, where they exist."""
    return None if any(part is None for part in parts) else backend.interleave(parts, pointers)
