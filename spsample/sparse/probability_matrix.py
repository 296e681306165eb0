"""`ProbabilityMatrix`: P written out, of weights that are in no graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spsample.backends import ColumnMatrix, ColumnSample, Draw, get_backend
from spsample.backends.arithmetic import default_float_environment
from spsample.backends.protocol import Int64Array
from spsample.backends.reference.quantisation import row_rule_numerators
from spsample.common.checks import check_draw, require_array
from spsample.errors import InputError
from spsample.sparse.csr import CSRMatrix


@dataclass(frozen=True, eq=False)
class ProbabilityMatrix:
    """P: each row a distribution over the columns, as integer numerators over a total (law, section 3: column law).

    `matrix.numerators` are what is drawn from; `to_scipy()` shows the probabilities as floats.
    """

    matrix: ColumnMatrix
    num_columns: int

    @classmethod
    @default_float_environment()
    def of(cls, weights: CSRMatrix) -> ProbabilityMatrix:
        """Each row's weights, quantised under the row rule (law, section 2)."""
        given = _checked_weights(weights)
        row = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
        order = np.lexsort((weights.indices, row))
        columns, given = weights.indices[order], given[order]
        parts = [
            row_rule_numerators(given[lo:hi]) for lo, hi in zip(weights.indptr[:-1], weights.indptr[1:], strict=True)
        ]
        numerators = np.concatenate([*parts, np.zeros(0, np.uint64)])
        keep = numerators > 0
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row[keep], minlength=weights.shape[0]))]).astype(np.int64)
        totals = np.array([p.sum(dtype=np.uint64) for p in parts], np.uint64)
        return cls(ColumnMatrix(indptr, columns[keep], numerators[keep], totals), weights.shape[1])

    def sample(self, draw: Draw, batch_ids: Int64Array | None = None) -> ColumnSample:
        """Columns of each row; `batch_ids` key the rows' draws."""
        ids = np.arange(len(self.matrix.totals), dtype=np.int64) if batch_ids is None else batch_ids
        check_draw(draw, ids, len(self.matrix.totals))
        return get_backend().draw_columns(self.matrix, ids, draw)

    def to_scipy(self) -> Any:
        """Probabilities (float64) as a SciPy CSR array: for people, never for drawing."""
        from scipy.sparse import csr_array

        P = self.matrix
        totals = np.repeat(P.totals, np.diff(P.indptr)).astype(np.float64)
        return csr_array((P.numerators / totals, P.columns, P.indptr), shape=(len(P.totals), self.num_columns))


def _checked_weights(matrix: CSRMatrix) -> np.ndarray[Any, np.dtype[np.float64]]:
    """As float64, if they can be weights."""
    given = np.ones(matrix.nnz) if matrix.data is None else matrix.data
    require_array("matrix.data", given, ("b", "i", "u", "f"), "real numbers")
    weights = given.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if bad.size:
        raise InputError(
            argument="matrix.data", given=f"{weights[bad[0]]} at position {bad[0]}", expected="finite weights >= 0"
        )
    return weights
