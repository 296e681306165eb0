"""The row law: P of node-wise samplers, and what is drawn from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spsample.backends import Compaction, Draw, Matrix, StackedRows, StackedSelector, UnitedHops
from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_type, short
from spsample.errors import InputError
from spsample.sparse.extraction import ExtractOptions, StackedLayer, consumed
from spsample.sparse.operand import Entries, Frontier, RowForm
from spsample.sparse.selector import RowSelector


class RowLaw(NamedTuple):
    """P with a distribution over the entries of each selected row of A (law, section 3: row law).

    It is never written: weights are quantised under the row rule as a row is drawn from. `form` is "weighted" or
    "uniform".
    """

    Q: RowSelector
    F: Frontier
    form: RowForm

    def sample(self, draw: Draw, edge_ids: bool = False) -> RowSample:
        """Entries of every row; a size of -1 takes whole rows."""
        F = self.F
        F.A.limit.before_draw(F, draw)
        if draw.size < 0:
            return WholeRows(self, edge_ids)
        return RowSample(self, F.sample_rows(draw, self.form, edge_ids))

    def sample_hops(self, draws: Sequence[Draw], edge_ids: bool) -> tuple[UnitedHops, Int64Array | None] | None:
        """The hops of the subgraph layout, the first from these rows, and edge ids; None: draw them one by one."""
        return self.F.sample_hops(draws, edge_ids) if self.form == "uniform" else None


class RowSample:
    """S of a node-wise sampler: the entries that were drawn from each row of P.

    EXTRACT consumes it: columns are numbered in place, so that they are in memory once, and a look at the sample
    afterwards raises `ConsumedError`.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.backends import get_backend
    >>> from spsample.sparse import LocalOperand, its_sample, normalize_rows
    >>> A = LocalOperand(Matrix(np.array([0, 2, 3]), np.array([0, 1, 0], np.int32)), None, get_backend("reference"))
    >>> Q = RowSelector(np.array([0, 2]), np.array([1, 0], np.int32), np.array([0]))
    >>> its_sample(normalize_rows(Q @ A), Draw((1, 2), 0, 2)).rows.columns.tolist()
    [0, 0, 1]
    """

    def __init__(self, P: RowLaw, entries: Entries | None) -> None:
        self.P = P
        self._entries = entries  # until EXTRACT takes them

    @property
    def entries(self) -> Entries:
        """All that was drawn."""
        if self._entries is None:
            raise consumed()
        return self._entries

    @property
    def rows(self) -> StackedRows:
        """The drawn entries of each selected row; columns are vertex ids."""
        return self.entries.rows

    @property
    def matrix(self) -> Matrix:
        """The matrix that the entries' positions point into."""
        return self.entries.matrix

    @property
    def selector(self) -> StackedSelector:
        """The rows of `matrix` that the entries came from."""
        return self.entries.selector

    @property
    def edge_ids(self) -> Int64Array | None:
        """Positions in the user's input, where asked for."""
        return self.entries.edge_ids

    def extract(self, options: ExtractOptions, known: RowSelector | None = None) -> StackedLayer:
        """The sampled rows; columns are numbered after each batch's `known` vertices, by default those of Q."""
        Q, F = self.P.Q, self.P.F
        if known is not None:
            _check_known(Q, known)
        entries, sources = self._consume(Q if known is None else known, options.include_targets)
        drawn = entries.rows
        rows = StackedRows(
            drawn.batch_ptr, drawn.entry_ptr, drawn.indptr, sources.local, drawn.positions, drawn.weights
        )
        return StackedLayer(Q, sources.src_ptr, sources.src, rows, F.values(entries, sources), entries.edge_ids)

    def _consume(self, known: RowSelector, include_targets: bool) -> tuple[Entries, Compaction]:
        """The entries, given up, and their columns numbered: of the entries use everything but the columns.

        A limit of entries that they pass leaves them here.
        """
        entries = self.entries
        self.P.F.A.limit.at_extract(len(entries.rows.columns))
        self._entries = None  # from here on the columns are written over
        return entries, self.P.F.compact(entries, known, include_targets)


class WholeRows(RowSample):
    """S where whole rows are taken: nothing is drawn, and EXTRACT takes and numbers the rows in one pass."""

    def __init__(self, P: RowLaw, edge_ids: bool) -> None:
        super().__init__(P, None)
        self._edge_ids = edge_ids
        self._taken = False

    @property
    def entries(self) -> Entries:
        """The rows, taken when first looked at."""
        if not self._taken:
            self._entries, self._taken = self.P.F.take_rows(self._edge_ids), True
        return super().entries

    def _consume(self, known: RowSelector, include_targets: bool) -> tuple[Entries, Compaction]:
        """As of any sample; rows that nobody has looked at are numbered as they are taken."""
        if self._taken:
            return super()._consume(known, include_targets)
        entries, sources = self.P.F.take_compacted(known, include_targets, self._edge_ids)
        self.P.F.A.limit.at_extract(len(entries.rows.columns))
        self._taken = True
        return entries, sources


def _check_known(Q: RowSelector, known: RowSelector) -> None:
    """Refuse known vertices that are of other batches than the rows of P."""
    require_type("known", known, RowSelector, "a RowSelector, or None for the rows of P")
    batch_ids = Q.batch_ids
    if known.batch_ids is not batch_ids and not np.array_equal(known.batch_ids, batch_ids):
        raise InputError(
            argument="known",
            given=f"batches {short(known.batch_ids)}",
            expected=f"{short(batch_ids)}, those of the rows of P",
        )
