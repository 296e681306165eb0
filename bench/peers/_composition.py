"""Bulk sampling composed of library calls: the paper's algorithm 1 by sparse products, prefix sums, sorts, searches.

With CuPy the products are those of cuSPARSE, with SciPy the same code runs on the host, which is how it is tested. It
is meant as a strong baseline, so where the library has a faster way to the same result, that is taken:

- NORM is fused into SAMPLE: x is drawn in [0, row total), so that no pass divides all entries of P;
- SAMPLE draws by `searchsorted` on one prefix sum over all rows. Draws that repeat an entry are drawn again; after a
  few rounds the rows that still lack some, which are short, get the rest by the smallest exponential variates over the
  weight, which has the same law (Efraimidis and Spirakis);
- EXTRACT looks columns up in one dense table of a group of batches, not by a product with a column selector.

Products are cut into pieces of about `most_entries` entries of P: an uncut one of the last layer would not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

Array = Any

ROUNDS = 4
"""Of draws that repeated ones are replaced in; then few rows are left."""


class Library(NamedTuple):
    """NumPy and scipy.sparse, or CuPy and cupyx.scipy.sparse."""

    xp: Any
    sparse: Any


class SampledLayer(NamedTuple):
    """One layer of k batches, stacked: row r of batch `row_batch[r]` is vertex `rows[r]`.

    Entry e lies in row `entry_rows[e]` (ascending) and column `columns[e]`, a place among its batch's sources:
    `sources[source_ptr[i]:source_ptr[i + 1]]`, ascending. `values` are those of layer-wise sampling.
    """

    rows: Array
    row_batch: Array
    entry_rows: Array
    columns: Array
    sources: Array
    source_ptr: Array
    values: Array | None

    @property
    def nnz(self) -> int:
        return len(self.columns)


class Composition:
    """Samplers over one graph.

    Parameters
    ----------
    indptr, indices, data
        A in memory of the library; `data` None: ones.
    most_entries
        Of a product at once, and one row more.
    """

    def __init__(
        self, library: Library, A: tuple[Array, Array, Array | None], random_seed: int = 0, most_entries: int = 1 << 27
    ) -> None:
        xp = self.xp = library.xp
        self._sparse = library.sparse
        indptr, indices, data = A
        self.n = len(indptr) - 1
        ones = xp.ones(len(indices), np.float32) if data is None else data
        self.A = self._csr(ones, indices, indptr, self.n)
        self.A_squared = self.A if data is None else self._csr(data * data, indices, indptr, self.n)
        self.degrees = xp.diff(indptr)
        self.most_entries = most_entries
        self._random = xp.random.default_rng(random_seed)

    def graphsage(self, seeds: Array, fanouts: Sequence[int]) -> list[SampledLayer]:
        """Layers of the batches `seeds` (k, b), nearest to the seeds first; targets stay among the sources."""
        frontier, batch = self._start(seeds)
        layers = []
        for fanout in fanouts:
            drawn = [self._draw_rows(frontier, rows, fanout) for rows in self._pieces(frontier)]
            entry_rows, columns = (self.xp.concatenate(parts) for parts in zip(*drawn, strict=True))
            layers.append(self._extract(frontier, batch, (entry_rows, columns, None), (batch[entry_rows], columns)))
            frontier, batch = self._next(layers[-1])
        return layers

    def ladies(self, seeds: Array, sizes: Sequence[int]) -> list[SampledLayer]:
        """The same by LADIES with p_v ~ sum_i A_iv^2; values are A_iv / (s p_v), of targets A_iv."""
        frontier, batch = self._start(seeds)
        k, layers = len(seeds), []
        for size in sizes:
            P = self._frontier_rows(frontier, batch, k) @ self.A_squared
            drawn = self._its(P.indptr, P.data, size)
            drawn_batch = self._row_of(P.indptr, drawn)
            weight = self._inverse_probability(P, drawn, drawn_batch, size)
            entries = self._masked_rows(frontier, batch, k, (drawn_batch, P.indices[drawn], weight))
            layers.append(self._extract(frontier, batch, entries, (drawn_batch, P.indices[drawn])))
            frontier, batch = self._next(layers[-1])
        return layers

    # --- Q A --------------------------------------------------------------------------------------------------------

    def _csr(self, data: Array, indices: Array, indptr: Array, columns: int) -> Any:
        """A matrix whose entries are known to be in order and distinct, so that no call sorts them."""
        shape = (len(indptr) - 1, columns)
        index = np.int32 if len(indices) < 2**31 else np.int64
        made = self._sparse.csr_matrix((data, indices, indptr.astype(index)), shape=shape)
        made.has_canonical_format = True
        return made

    def _selected(self, rows: Array) -> Any:
        """Q A of a Q with one entry in each row."""
        ones = self.xp.ones(len(rows), np.float32)
        Q = self._csr(ones, rows.astype(self.A.indices.dtype), self.xp.arange(len(rows) + 1), self.n)
        return Q @ self.A

    def _frontier_rows(self, frontier: Array, batch: Array, k: int) -> Any:
        """Q of layer-wise sampling: row i has the frontier of batch i, which is in ascending order."""
        indptr = self.xp.searchsorted(batch, self.xp.arange(k + 1))
        ones = self.xp.ones(len(frontier), np.float32)
        return self._csr(ones, frontier.astype(self.A.indices.dtype), indptr, self.n)

    def _pieces(self, frontier: Array) -> Iterator[slice]:
        """Slices of the frontier whose rows but the first have at most `most_entries` entries together."""
        xp, ends = self.xp, self.xp.cumsum(self.degrees[frontier])
        total = int(ends[-1]) if len(ends) else 0
        cuts = xp.searchsorted(ends, xp.arange(self.most_entries, total, self.most_entries), side="right").tolist()
        bounds = sorted({0, *cuts, len(frontier)})
        return (slice(first, last) for first, last in pairwise(bounds))

    # --- SAMPLE -----------------------------------------------------------------------------------------------------

    def _draw_rows(self, frontier: Array, rows: slice, size: int) -> tuple[Array, Array]:
        """Row (of the whole frontier) and column of each entry that is drawn from a piece of it."""
        P = self._selected(frontier[rows])
        drawn = self._its(P.indptr, P.data, size)
        return self._row_of(P.indptr, drawn) + rows.start, P.indices[drawn].astype(np.int64)

    def _its(self, indptr: Array, weights: Array, size: int) -> Array:
        """Positions, ascending, of `size` distinct entries of each row, or of all; weights are positive."""
        xp = self.xp
        indptr = indptr.astype(np.int64)
        lengths = xp.diff(indptr)
        whole = lengths <= size
        chosen = self._entries_of(indptr, xp.flatnonzero(whole))
        wanted = xp.minimum(lengths, size)
        sums = xp.concatenate([xp.zeros(1), xp.cumsum(weights, dtype=np.float64)])
        base = sums[indptr[:-1]]
        totals = sums[indptr[1:]] - base
        for _ in range(ROUNDS):
            missing = wanted - xp.diff(xp.searchsorted(chosen, indptr))
            rows = self._repeated(missing)
            if not len(rows):
                return chosen
            x = base[rows] + self._random.random(len(rows)) * totals[rows]
            drawn = xp.searchsorted(sums, x, side="right") - 1
            chosen = xp.unique(xp.concatenate([chosen, xp.clip(drawn, indptr[rows], indptr[rows + 1] - 1)]))
        missing = wanted - xp.diff(xp.searchsorted(chosen, indptr))
        rest = self._smallest(indptr, weights, chosen, missing)
        return xp.sort(xp.concatenate([chosen, rest]))

    def _smallest(self, indptr: Array, weights: Array, chosen: Array, missing: Array) -> Array:
        """So many more entries of each row: those not chosen whose exponential variate over the weight is smallest."""
        xp = self.xp
        short = xp.flatnonzero(missing)
        entries = self._entries_of(indptr, short)
        if not len(entries):
            return entries
        place = xp.minimum(xp.searchsorted(chosen, entries), max(len(chosen) - 1, 0))
        entries = entries[chosen[place] != entries] if len(chosen) else entries
        rows = self._row_of(indptr, entries)
        key = -xp.log1p(-self._random.random(len(entries))) / weights[entries]
        order = xp.lexsort(xp.stack([key, rows.astype(np.float64)]))
        entries, rows = entries[order], rows[order]
        rank = xp.arange(len(rows)) - xp.searchsorted(rows, rows)
        return entries[rank < missing[rows]]

    def _inverse_probability(self, P: Any, drawn: Array, row: Array, size: int) -> Array:
        """1 / (s p_v) of each drawn column, 1 where its row is taken whole."""
        xp = self.xp
        indptr = P.indptr.astype(np.int64)
        sums = xp.concatenate([xp.zeros(1), xp.cumsum(P.data, dtype=np.float64)])
        totals = (sums[indptr[1:]] - sums[indptr[:-1]])[row]
        return xp.where(xp.diff(indptr)[row] <= size, 1.0, totals / (size * P.data[drawn])).astype(np.float32)

    # --- EXTRACT ----------------------------------------------------------------------------------------------------

    def _masked_rows(self, frontier: Array, batch: Array, k: int, drawn: tuple[Array, Array, Array]) -> Any:
        """Rows, columns and values of the frontier's entries whose column their batch drew, or has as a target."""
        xp = self.xp
        drawn_batch, columns, weight = drawn
        factor = xp.zeros(k * self.n, np.float32)
        factor[drawn_batch * self.n + columns] = weight
        factor[batch * self.n + frontier] = 1
        parts = []
        for rows in self._pieces(frontier):
            P = self._selected(frontier[rows])
            row = self._repeated(xp.diff(P.indptr.astype(np.int64)))
            scale = factor[batch[rows][row] * self.n + P.indices]
            kept = xp.flatnonzero(scale)
            values = P.data[kept] * scale[kept]
            parts.append((row[kept] + rows.start, P.indices[kept].astype(np.int64), values))
        return tuple(xp.concatenate(some) for some in zip(*parts, strict=True))

    def _extract(
        self, frontier: Array, batch: Array, entries: tuple[Array, Array, Array | None], found: tuple[Array, Array]
    ) -> SampledLayer:
        """Columns as places among the targets and the found columns of each batch, by one table of all batches."""
        xp, k = self.xp, int(batch[-1]) + 1 if len(batch) else 0
        entry_rows, columns, values = entries
        met = xp.zeros(k * self.n, np.bool_)
        met[batch * self.n + frontier] = True
        met[found[0] * self.n + found[1]] = True
        keys = xp.flatnonzero(met)
        source_ptr = xp.searchsorted(keys, xp.arange(k + 1) * self.n)
        rank = xp.cumsum(met, dtype=np.int32)
        entry_batch = batch[entry_rows]
        local = rank[entry_batch * self.n + columns] - 1 - source_ptr[entry_batch]
        return SampledLayer(frontier, batch, entry_rows, local, keys % self.n, source_ptr, values)

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _start(self, seeds: Array) -> tuple[Array, Array]:
        """The seeds of all batches in one array, ascending within a batch, and the batch of each."""
        xp, (k, b) = self.xp, seeds.shape
        return xp.sort(xp.asarray(seeds), axis=1).ravel().astype(np.int64), xp.arange(k * b) // b

    def _next(self, layer: SampledLayer) -> tuple[Array, Array]:
        return layer.sources, self._repeated(self.xp.diff(layer.source_ptr))

    def _row_of(self, indptr: Array, entries: Array) -> Array:
        return self.xp.searchsorted(indptr, entries, side="right") - 1

    def _repeated(self, counts: Array) -> Array:
        """i, so many times, for each i."""
        ends = self.xp.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        return self.xp.searchsorted(ends, self.xp.arange(total), side="right")

    def _entries_of(self, indptr: Array, rows: Array) -> Array:
        """Positions of all entries of some rows, which ascend."""
        lengths = indptr[rows + 1] - indptr[rows]
        which = self._repeated(lengths)
        first = self.xp.cumsum(lengths) - lengths
        return indptr[rows][which] + self.xp.arange(len(which)) - first[which]
