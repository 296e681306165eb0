"""Integer probabilities of whole matrices: row exponents, and column sums under the graph rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from spsample.backends.cuda.calls import Calls, num_columns, variant_of
from spsample.backends.cuda.device import DeviceArray, Kernel
from spsample.backends.protocol import Matrix, QuantisationRule

EVEN_EXPONENTS = Kernel("probability", "even_row_exponents")
EXPONENTS = Kernel("probability", "row_exponents", lanes=32)
ADD_COLUMNS = Kernel("probability", "add_columns", lanes=32)
SQUARE = Kernel("probability", "square")

SIGN = np.uint32(1 << 31)


def refused_columns() -> ValueError:
    """The error of columns that are not below the number of columns."""
    return ValueError("indices: a column is not below the number of columns")


class Probabilities(Calls):
    """`row_exponents` and `column_totals`."""

    def row_exponents(self, A: Matrix) -> DeviceArray:
        """Largest binary exponent of each row's positive entries (int32); `NO_EXPONENT` without any."""
        rows = len(A.indptr) - 1
        arguments = (*self.matrix(A), *self.weights(A), rows)
        if A.data is None:
            exponents = self.device.empty(rows, np.int32)
            self.run(EVEN_EXPONENTS, rows, *arguments, exponents, variant=variant_of(A))
            return exponents
        raised = self.device.zeros(rows, np.uint32)
        self.run(EXPONENTS, self.device.resident_warps(), *arguments, raised, variant=variant_of(A))
        return (raised ^ SIGN).view(np.int32)

    def column_totals(self, A: Matrix, rule: QuantisationRule) -> DeviceArray:
        """(n,) column sums over all rows under the graph rule. Waits once."""
        n = num_columns(A)
        sums, refused = self.device.zeros(n, np.uint64), self.device.zeros(1, np.int64)
        arguments = (
            *self.matrix(A),
            *self.weights(A),
            *self.rule_parameters(rule),
            len(A.indptr) - 1,
            n,
            sums,
            refused,
        )
        self.run(ADD_COLUMNS, self.device.resident_warps(), *arguments, variant=variant_of(A))
        self.raise_columns(rule.column_power, sums)
        if self.device.to_host(refused)[0]:
            raise refused_columns()
        return sums

    def rule_parameters(self, rule: QuantisationRule) -> tuple[Any, ...]:
        """Parameters of the rule by which entries get their numerators."""
        return (None if rule.shifts is None else self.uploaded(rule.shifts), rule.power)

    def raise_columns(self, column_power: int, sums: DeviceArray) -> None:
        """The sums to the column power (1 or 2), in place."""
        if column_power == 2:
            self.run(SQUARE, len(sums), len(sums), sums)
