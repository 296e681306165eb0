"""`RowSample`: what SAMPLE drew from each row of P, drawn when it is looked at, or by EXTRACT."""

from __future__ import annotations

from spsample.backends import Compaction, Draw, Matrix, StackedRows, StackedSelector
from spsample.backends.protocol import Int64Array
from spsample.common.lazily import lazily
from spsample.sparse.operand import Entries, Numbering
from spsample.sparse.selector import RowSelector, RowView


class RowSample:
    """S of a node-wise sampler, lazily: entries drawn from each row of P (row law).

    Nothing is drawn until somebody looks. EXTRACT of a sample that nobody has looked at draws it and numbers its
    columns in place, so that they are in memory once; a later look draws again, which gives the same bits.

    Parameters
    ----------
    P : RowView
        `Q @ A`.
    draw : Draw
        Size, replacement, and what keys the draws.
    edge_ids : bool
        Also give the entries' positions in the user's input.

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

    def __init__(self, P: RowView, draw: Draw, edge_ids: bool = False) -> None:
        self.P = P
        self.draw = draw
        self._edge_ids = edge_ids

    @lazily
    def entries(self) -> Entries:
        """All that was drawn."""
        return self.P.sample(self.draw, self._edge_ids)

    @property
    def rows(self) -> StackedRows:
        """The drawn entries of each selected row; columns are vertex ids."""
        return self.entries.rows

    @property
    def matrix(self) -> Matrix:
        """What the entries' positions point into."""
        return self.entries.matrix

    @property
    def selector(self) -> StackedSelector:
        """The rows of `matrix` that the entries came from."""
        return self.entries.selector

    @property
    def edge_ids(self) -> Int64Array | None:
        """Positions in the user's input, where asked for."""
        return self.entries.edge_ids

    def compact(self, known: RowSelector, include_targets: bool) -> tuple[Entries, Compaction]:
        """The entries, and their columns as places in each batch's src: its `known` vertices first, then the new ones.

        Of the entries that come back use everything but the columns.
        """
        if "entries" in self.__dict__:
            A = self.P.A
            return self.entries, A.backend.compact(known.arrays, self.rows, include_targets, A.num_vertices)
        return self.P.sample_numbered(self.draw, Numbering(known.arrays, include_targets, self._edge_ids))
