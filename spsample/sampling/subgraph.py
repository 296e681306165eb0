"""The subgraph layout: each vertex is drawn once, at the hop that found it; layers are unions of hops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
    return _prefixes(hops, known)


def _new_vertices(found: RowSelector, known: RowSelector) -> RowSelector:
    """The vertices behind the `found` ones in each batch of `known`."""
    new = np.diff(known.batch_ptr) - np.diff(found.batch_ptr)
    ptr = np.concatenate([[0], np.cumsum(new)]).astype(np.int64)
    ends = known.batch_ptr[1:]
    parts = [known.vertices[lo:hi] for lo, hi in zip((ends - new).tolist(), ends.tolist(), strict=True)]
    vertices = np.concatenate(parts) if parts else known.vertices
    return RowSelector(ptr, vertices, known.batch_ids)


def _prefixes(hops: list[StackedLayer], known: RowSelector) -> list[BulkLayer]:
    """One CSR per batch over all hops' rows; layer l uses its first hops."""
    k = len(known.batch_ids)
    entries = _Interleaving([np.diff(h.rows.entry_ptr) for h in hops], k)
    rows = _Interleaving([np.diff(h.rows.batch_ptr) for h in hops], k)
    indptr = _pointers(hops, rows)
    indices = entries.gather([h.rows.columns for h in hops])
    data = entries.gather_optional([h.data for h in hops])
    edge_ids = entries.gather_optional([h.edge_ids for h in hops])
    num_known = np.stack([np.diff(hops[0].dst.batch_ptr), *(np.diff(h.src_ptr) for h in hops)])
    first, first_row, first_entry = known.batch_ptr[:-1], rows.batch_ptr[:-1] + np.arange(k), entries.batch_ptr[:-1]
    return [
        BulkLayer(
            dst=known.vertices,
            dst_ranges=Ranges(first, first + num_known[hop]),
            src=known.vertices,
            src_ranges=Ranges(first, first + num_known[hop + 1]),
            indptr=indptr,
            indptr_ranges=Ranges(first_row, first_row + num_known[hop] + 1),
            indices=indices,
            data=data,
            edge_ids=edge_ids,
            entry_ranges=Ranges(first_entry, first_entry + entries.sizes[: hop + 1].sum(axis=0)),
        )
        for hop in reversed(range(len(hops)))
    ]


class _Interleaving:
    """Places for stacked arrays of several hops, so that each batch's parts lie side by side, hop after hop."""

    def __init__(self, sizes: list[Int64Array], k: int) -> None:
        self.sizes = np.stack(sizes).reshape(len(sizes), k)
        self.batch_ptr = np.concatenate([[0], np.cumsum(self.sizes.sum(axis=0))]).astype(np.int64)
        self.begin = self.batch_ptr[:-1] + np.cumsum(self.sizes, axis=0) - self.sizes

    def gather(self, parts: list[NDArray[Any]]) -> NDArray[Any]:
        """The hops' arrays, interleaved."""
        out = np.empty(self.batch_ptr[-1], parts[0].dtype)
        for part, sizes, begin in zip(parts, self.sizes, self.begin, strict=True):
            ends = np.cumsum(sizes)
            for lo, hi, to in zip((ends - sizes).tolist(), ends.tolist(), begin.tolist(), strict=True):
                out[to : to + hi - lo] = part[lo:hi]
        return out

    def gather_optional(self, parts: list[NDArray[Any] | None]) -> NDArray[Any] | None:
        """The same where the arrays exist."""
        present = [p for p in parts if p is not None]
        return self.gather(present) if len(present) == len(parts) else None


def _pointers(hops: list[StackedLayer], rows: _Interleaving) -> Int64Array:
    """Row pointers over all hops that start at 0 in every batch, (rows + k,)."""
    k = len(rows.batch_ptr) - 1
    shift = np.arange(k)  # a batch has one pointer more than rows
    indptr = np.empty(rows.batch_ptr[-1] + k, np.int64)
    indptr[rows.batch_ptr[:-1] + shift] = 0
    before = np.zeros(k, np.int64)  # entries of earlier hops
    for hop, sizes, begin in zip(hops, rows.sizes, rows.begin, strict=True):
        first = hop.rows.batch_ptr[:-1] + shift + 1
        to = begin + shift + 1
        for lo, hi, out, base in zip(
            first.tolist(), (first + sizes).tolist(), to.tolist(), before.tolist(), strict=True
        ):
            np.add(hop.rows.indptr[lo:hi], base, out=indptr[out : out + hi - lo])
        before += np.diff(hop.rows.entry_ptr)
    return indptr
