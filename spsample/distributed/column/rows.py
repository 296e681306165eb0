"""Row law on a partitioned A: the owner of a row draws from it, and sends back what it drew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from spsample.backends import Draw, StackedSelector
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import Int64Array
from spsample.comm import Received, Sent
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.row_arrays import RowArrays, received_entries
from spsample.distributed.wire_format import segment_sums
from spsample.sparse import Entries, Frontier, LocalOperand, row_lengths
from spsample.sparse.operand import RowForm, ScaledForm, own_weights

PHASE = "rows"


class RowDraw(NamedTuple):
    """A request to the owner of rows: `sample_rows` with these arguments, or `take_rows` where there is no draw."""

    draw: Draw | None
    form: RowForm | ScaledForm
    edge_ids: bool

    def entries(self, frontier: Frontier) -> Entries:
        """Draw from rows of a block, or take them whole."""
        if self.draw is None:
            return frontier.take_rows(self.edge_ids)
        return frontier.sample_rows(self.draw, self.form, self.edge_ids)

    def length_dtype(self, num_edges: int) -> np.dtype[Any]:
        """Return the smallest type that holds the number of entries that a row can give.

        Examples
        --------
        >>> RowDraw(Draw((0, 0), 0, 15), "uniform", False).length_dtype(10**6)
        dtype('uint8')
        """
        most = num_edges if self.draw is None else self.draw.size
        fits = next(t for t in (np.uint8, np.uint16, np.int32, np.int64) if most <= np.iinfo(t).max)
        return np.dtype(fits)


def sample_rows(A: PartitionedOperand, Q: StackedSelector, how: RowDraw) -> Entries:
    """`Frontier.sample_rows`: ask the owners, and stack the answers in the order of Q."""
    placement, k = A.held.placement, len(Q.batch_ids)
    routed = A.backend.route_rows(Q, *placement)
    rows, of_parts = placement.places_of(routed.vertices), routed.counts.sum(axis=1)
    batches = np.full(A.num_parts, k, np.int64)
    sends = [
        Sent(routed.counts.ravel(), batches),
        Sent(np.tile(Q.batch_ids, A.num_parts), batches),
        Sent(rows - np.repeat(placement.bounds[:-1].astype(rows.dtype), of_parts), of_parts),
    ]
    lengths, columns, *more = A.ask(sends, _serving(how, A.num_edges), phase=PHASE)
    weighting = A.weighting
    degrees = more.pop(0).rows[routed.places] if weighting == "row" else None
    weights = more.pop(0).rows if weighting == "weighted" else None
    ids = cast("Int64Array", more.pop(0).rows) if how.edge_ids else None
    drawn = RowArrays(lengths.rows, columns.rows, weights, ids)
    stacked, drawn = drawn.stacked(A.backend, Q.batch_ptr, routed.places)
    return received_entries(stacked, Q.batch_ids, drawn.edge_ids, degrees)


def _serving(how: RowDraw, num_edges: int) -> Callable[[LocalOperand, Sequence[Received]], list[Sent]]:
    """Return a function that draws from a block for the ranks that ask.

    Answers: each row's number of entries, their columns, the rows' lengths in A (row-normalised graphs), the entries'
    weights (weighted graphs) and edge ids (where asked for).
    """
    dtype = how.length_dtype(num_edges)

    def serve(block: LocalOperand, received: Sequence[Received]) -> list[Sent]:
        counts, batch_ids, rows = received
        Q = StackedSelector(pointers_of(counts.rows), rows.rows, batch_ids.rows)
        drawn = how.entries(block.frontier(Q))
        lengths, asked = row_lengths(drawn.rows), rows.counts
        entries = segment_sums(np.diff(drawn.rows.entry_ptr), batch_ids.counts)
        answers = [Sent(lengths.astype(dtype), asked), Sent(drawn.rows.columns, entries)]
        if block.weighting == "row":
            answers.append(Sent(np.diff(block.matrix.indptr)[Q.vertices], asked))
        if block.weighting == "weighted":
            weights = own_weights(block, drawn)
            answers.append(Sent(np.asarray(weights), entries))
        if drawn.edge_ids is not None:
            answers.append(Sent(drawn.edge_ids, entries))
        return answers

    return serve
