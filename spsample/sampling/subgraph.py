"""The subgraph layout: each vertex is drawn once, at the hop that found it; layers are unions of hops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import Backend
from spsample.backends.protocol import Int64Array
from spsample.sampling.bulk_layer import BulkLayer, Ranges
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
    hops: list[_Hop] = []
    for hop, s in enumerate(sampler.sizes):
        P = normalize_rows(sampler.product(A, fresh))
        S = its_sample(P, Draw(key, hop, s, sampler.replace), edge_ids=edge_ids)
        layer = extract_rows(P, S, want, known)
        hops.append(_Hop(layer))
        found, known = known, layer.next_selector()
        del P, S, layer  # with the vertices of earlier hops, which are among those of later ones
        fresh = _new_vertices(found, known) if hop + 1 < len(sampler.sizes) else known
        del found
    del fresh
    return _Union(A.backend, hops, known).layers()


class _Hop:
    """What the union is made of: pointers of the hop's rows and entries, and its arrays, each to be taken once."""

    def __init__(self, layer: StackedLayer) -> None:
        self.batch_ptr = layer.rows.batch_ptr
        self.src_ptr = layer.src_ptr
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


def _new_vertices(found: RowSelector, known: RowSelector) -> RowSelector:
    """The vertices behind the `found` ones in each batch of `known`."""
    new = np.diff(known.batch_ptr) - np.diff(found.batch_ptr)
    ptr = np.concatenate([[0], np.cumsum(new)]).astype(np.int64)
    ends = known.batch_ptr[1:]
    parts = [known.vertices[lo:hi] for lo, hi in zip((ends - new).tolist(), ends.tolist(), strict=True)]
    vertices = np.concatenate(parts) if parts else known.vertices
    return RowSelector(ptr, vertices, known.batch_ids)


class _Union:
    """One CSR per batch over all hops' rows; layer l uses its first hops."""

    def __init__(self, backend: Backend, hops: list[_Hop], known: RowSelector) -> None:
        entry_ptr = [hop.entry_ptr for hop in hops]
        self.known = known
        self.num_known = np.stack([np.diff(hops[0].batch_ptr), *(np.diff(hop.src_ptr) for hop in hops)])
        self.num_entries = np.cumsum(np.stack([np.diff(p) for p in entry_ptr]), axis=0)
        # One kind of array after the other, the longest first: beside the result there is that one once more at most.
        self.edge_ids = _gathered(backend, [hop.take("edge_ids") for hop in hops], entry_ptr)
        self.data = _gathered(backend, [hop.take("data") for hop in hops], entry_ptr)
        self.indices: Any = backend.interleave([hop.take("columns") for hop in hops], entry_ptr)
        self.indptr = backend.interleave_pointers([hop.take("indptr") for hop in hops], [hop.batch_ptr for hop in hops])

    def layers(self) -> list[BulkLayer]:
        """Layer 1, of all hops, first."""
        return [self._layer(hop) for hop in reversed(range(len(self.num_entries)))]

    def _layer(self, hop: int) -> BulkLayer:
        num_rows = self.num_known[-2]
        first = self.known.batch_ptr[:-1]
        first_row = np.cumsum(num_rows + 1) - num_rows - 1
        first_entry = np.cumsum(self.num_entries[-1]) - self.num_entries[-1]
        return BulkLayer(
            dst=self.known.vertices,
            dst_ranges=Ranges(first, first + self.num_known[hop]),
            src=self.known.vertices,
            src_ranges=Ranges(first, first + self.num_known[hop + 1]),
            indptr=self.indptr,
            indptr_ranges=Ranges(first_row, first_row + self.num_known[hop] + 1),
            indices=self.indices,
            data=self.data,
            edge_ids=self.edge_ids,
            entry_ranges=Ranges(first_entry, first_entry + self.num_entries[hop]),
        )


def _gathered(backend: Backend, parts: list[Any], pointers: list[Int64Array]) -> Any:
    """The hops' arrays as one, where they exist."""
    return None if any(part is None for part in parts) else backend.interleave(parts, pointers)
