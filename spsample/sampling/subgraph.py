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
    hops: list[StackedLayer] = []
    for hop, s in enumerate(sampler.sizes):
        P = normalize_rows(sampler.product(A, fresh))
        S = its_sample(P, Draw(key, hop, s, sampler.replace), edge_ids=edge_ids)
        hops.append(extract_rows(P, S, want, known))
        found, known = known, hops[-1].next_selector()
        fresh = _new_vertices(found, known)
    return _Union(A.backend, hops, known).layers()


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

    def __init__(self, backend: Backend, hops: list[StackedLayer], known: RowSelector) -> None:
        rows = [hop.rows for hop in hops]
        entry_ptr = [one.entry_ptr for one in rows]
        self.known = known
        self.num_known = np.stack([np.diff(hops[0].dst.batch_ptr), *(np.diff(hop.src_ptr) for hop in hops)])
        self.num_entries = np.cumsum(np.stack([np.diff(p) for p in entry_ptr]), axis=0)
        self.indptr = backend.interleave_pointers([one.indptr for one in rows], [one.batch_ptr for one in rows])
        self.data = _gathered(backend, [hop.data for hop in hops], entry_ptr)
        self.edge_ids = _gathered(backend, [hop.edge_ids for hop in hops], entry_ptr)
        columns = [one.columns for one in rows]
        hops.clear()  # with the references of this function, nothing of the hops is in memory but what is gathered last
        del rows
        self.indices: Any = backend.interleave(columns, entry_ptr)

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
