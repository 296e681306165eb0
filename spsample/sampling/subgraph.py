"""The subgraph layout: each vertex is drawn once, at the hop that found it; layers are unions of hops."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import Backend
from spsample.backends.protocol import Int64Array, IntArray
from spsample.sampling.bulk_layer import BulkLayer, Slices
from spsample.sparse import (
    Draw,
    Extraction,
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
    want = Extraction(True, edge_ids)
    known = fresh = Q
    known_ptr = [Q.batch_ptr]  # of the vertices known before each hop, and after the last
    hops: list[_Hop] = []
    for hop, s in enumerate(sampler.sizes):
        if hop > 0:
            fresh = RowSelector(*A.backend.appended(known_ptr[-2], known_ptr[-1], known.vertices), Q.batch_ids)
        P = normalize_rows(sampler.product(A, fresh))
        S = its_sample(P, Draw(key, hop, s, sampler.replace), edge_ids=edge_ids)
        layer = extract_rows(P, S, want, known)
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
        self.entry_ptr = [hop.entry_ptr for hop in hops]
        # One kind of array after the other, the longest first: beside the result there is that one once more at most.
        self.edge_ids = _gathered(backend, [hop.take("edge_ids") for hop in hops], self.entry_ptr)
        self.data = _gathered(backend, [hop.take("data") for hop in hops], self.entry_ptr)
        self.indices: Any = backend.interleave([hop.take("columns") for hop in hops], self.entry_ptr)
        self.indptr = backend.interleave_pointers([hop.take("indptr") for hop in hops], [hop.batch_ptr for hop in hops])

    def layers(self, known: IntArray) -> list[BulkLayer]:
        """Layer 1, of all hops, first. `known` are all vertices of all batches."""
        first = self.known_ptr[-1][:-1]
        first_row = self.known_ptr[-2][:-1] + np.arange(len(first))  # a batch has one pointer more than rows
        second_row = first_row + 1
        first_entry = end_entry = reduce(np.add, [ptr[:-1] for ptr in self.entry_ptr])
        num_dst = _sizes(self.known_ptr[0])
        dst = Slices(first, first + num_dst)
        layers = []
        for src_ptr, entry_ptr in zip(self.known_ptr[1:], self.entry_ptr, strict=True):
            num_src = _sizes(src_ptr)
            end_entry = end_entry + _sizes(entry_ptr)
            src = Slices(first, first + num_src)
            rows, entries = Slices(first_row, second_row + num_dst), Slices(first_entry, end_entry)
            csr = (self.indptr, rows, self.indices, self.data, self.edge_ids, entries)
            layers.append(BulkLayer(known, dst, known, src, *csr))
            num_dst, dst = num_src, src
        return layers[::-1]


def _sizes(ptr: Int64Array) -> Int64Array:
    """Elements of each batch."""
    return ptr[1:] - ptr[:-1]


def _gathered(backend: Backend, parts: list[Any], pointers: list[Int64Array]) -> Any:
    """The hops' arrays as one, where they exist."""
    return None if any(part is None for part in parts) else backend.interleave(parts, pointers)
