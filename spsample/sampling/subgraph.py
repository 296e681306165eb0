"""The subgraph layout: each vertex is drawn once, at the hop that found it; layers are unions of hops."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from spsample.backends import Backend
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
    options = ExtractOptions(True, edge_ids)
    known = fresh = Q
    known_ptr = [Q.batch_ptr]  # of the vertices known before each hop, and after the last
    hops: list[_Hop] = []
    for hop, s in enumerate(sampler.sizes):
        if hop > 0:
            fresh = RowSelector(*A.backend.appended(known_ptr[-2], known_ptr[-1], known.vertices), Q.batch_ids)
        P = normalize_rows(sampler.product(A, fresh))
        S = its_sample(P, Draw(key, hop, s, sampler.replace), edge_ids=edge_ids)
        layer = extract_rows(P, S, options, known)
        hops.append(_Hop(layer))
        known = layer.next_selector()
        known_ptr.append(known.batch_ptr)
        del P, S, layer  # with the vertices of earlier hops, which are among those of later ones
    del fresh
    return _Union(A.backend, hops, known_ptr).layers(known.vertices)


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


class _Union:
    """One CSR per batch over all hops' rows; layer l uses its first hops."""

    def __init__(self, backend: Backend, hops: list[_Hop], known_ptr: list[Int64Array]) -> None:
        self.known_ptr = known_ptr
        entry_ptr = [hop.entry_ptr for hop in hops]
        self.entry_sums = list(accumulate(entry_ptr))  # entries of the first hops, of each batch and those before it
        # One kind of array after the other, the longest first: beside the result there is that one once more at most.
        self.edge_ids = _gathered(backend, [hop.take("edge_ids") for hop in hops], entry_ptr)
        self.data = _gathered(backend, [hop.take("data") for hop in hops], entry_ptr)
        self.indices: Any = backend.interleave([hop.take("columns") for hop in hops], entry_ptr)
        self.indptr = backend.interleave_pointers([hop.take("indptr") for hop in hops], [hop.batch_ptr for hop in hops])

    def layers(self, known: IntArray) -> list[BulkLayer]:
        """Layer 1, of all hops, first. `known` are all vertices of all batches."""
        every_vertex, every_row, every_entry = self.known_ptr[-1], self.known_ptr[-2], self.entry_sums[-1]
        dst = Ranges(every_vertex, self.known_ptr[0])
        layers = []
        for dst_ptr, src_ptr, entry_ptr in zip(self.known_ptr[:-1], self.known_ptr[1:], self.entry_sums, strict=True):
            src = Ranges(every_vertex, src_ptr)
            rows, entries = Ranges(every_row, dst_ptr, more=1), Ranges(every_entry, entry_ptr)
            csr = (self.indptr, rows, self.indices, self.data, self.edge_ids, entries)
            layers.append(BulkLayer(known, dst, known, src, *csr))
            dst = src
        return layers[::-1]


def _gathered(backend: Backend, parts: list[Any], pointers: list[Int64Array]) -> Any:
    """The hops' arrays as one, where they exist."""
    return None if any(part is None for part in parts) else backend.interleave(parts, pointers)
