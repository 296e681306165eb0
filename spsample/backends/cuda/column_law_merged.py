"""Numerators merged by column: over all rows of a matrix, or Q A with one row per batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from spsample.backends.cuda.compaction_sets import PLACE_NEW, ColumnSets, groups
from spsample.backends.cuda.device import Device, DeviceArray, Kernel
from spsample.backends.cuda.launcher import KernelLauncher, index_variant, num_columns, variant_of
from spsample.backends.protocol import ColumnMatrix, Int64Array, Matrix, QuantisationRule, StackedSelector

ADD_COLUMNS = Kernel("column_law_merged", "add_columns", lanes=32)

SQUARE = Kernel("column_law_merged", "square")

MARK = Kernel("column_law_merged", "mark_columns", lanes=32)

ADD = Kernel("column_law_merged", "add_numerators", lanes=32)

TOTALS = Kernel("column_law_merged", "batch_totals")


COLUMN_BYTES = 40
"""A merged column takes them: its id, its numerator, the prefix sum, and a copy while parts are joined."""


class Merged(NamedTuple):
    """The merged columns of batches first .. last - 1: `indptr` on the host from 0; the others on the device."""

    first: int
    last: int
    indptr: Int64Array
    columns: DeviceArray
    numerators: DeviceArray


class _Work(NamedTuple):
    """The rows to merge; `ends` (m + 1): where each row's entries begin."""

    A: Matrix
    Q: StackedSelector
    rule: QuantisationRule
    ends: DeviceArray


class _Group(NamedTuple):
    """Batches whose columns are marked and ranked: `ends` and `host_ends` point to the columns of each."""

    first: int
    sets: ColumnSets
    ends: DeviceArray
    host_ends: Int64Array


class MergedColumnKernels(KernelLauncher):
    """`column_totals` and `merge_columns`, whole or part by part."""

    def column_totals(self, A: Matrix, rule: QuantisationRule) -> DeviceArray:
        """(n,) column sums over all rows under the graph rule. Waits once."""
        n = num_columns(A)
        sums, refused = self.device.zeros(n, np.uint64), self.device.zeros(1, np.int64)
        arguments = (
            *self.matrix(A),
            *self.weights(A),
            *self._rule(rule),
            len(A.indptr) - 1,
            n,
            sums,
            refused,
        )
        self.run(ADD_COLUMNS, self.device.resident_warps(), *arguments, variant=variant_of(A))
        self._raise_columns(rule.column_power, sums)
        if self.device.to_host(refused)[0]:
            raise _refused_columns()
        return sums

    def merge_columns(self, A: Matrix, Q: StackedSelector, rule: QuantisationRule) -> ColumnMatrix:
        """Q A with one row per batch: numerators merged by column, ascending, to `column_power`; zeros left out."""
        parts = list(self.merged_parts(A, Q, rule))
        columns = joined(self.device, [part.columns for part in parts], A.indices[:0])
        numerators = joined(self.device, [part.numerators for part in parts], self.device.empty(0, np.uint64))
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.indptr) for part in parts)])
        return self.summed(np.cumsum(lengths, dtype=np.int64), columns, numerators, 1)  # raised part by part

    def summed(
        self, indptr: Int64Array, columns: DeviceArray, numerators: DeviceArray, column_power: int
    ) -> ColumnMatrix:
        """With each row's total, once the numerators are raised in place. Waits."""
        k = len(indptr) - 1
        self._raise_columns(column_power, numerators)
        totals = self.device.empty(k, np.uint64)
        self.run(TOTALS, k, k, self.uploaded(indptr), self.merged_prefix(numerators), totals)
        return ColumnMatrix(indptr, columns, numerators, self.device.to_host(totals))

    def merged_parts(self, A: Matrix, Q: StackedSelector, rule: QuantisationRule) -> Iterator[Merged]:
        """The merged columns of consecutive batches, as many at a time as memory allows. Waits once for each group."""
        work = _Work(A, Q, rule, self.row_ends(A, Q, -1, False))
        for batches in groups(self.device, len(Q.batch_ids), num_columns(A)):
            group = self._marked_group(work, batches)
            for part in _fitting(self.device, group.host_ends):
                yield self._merged_part(work, group, part)

    def merged_prefix(self, numerators: DeviceArray) -> DeviceArray:
        """Inclusive sums over all batches, which wrap: a batch's are differences."""
        prefix = self.device.empty(len(numerators), np.uint64)
        self.device.cumsum(numerators, prefix)
        return prefix

    def _marked_group(self, work: _Work, batches: tuple[int, int]) -> _Group:
        """The sets of the columns that batches of a group have."""
        A, k = work.A, len(work.Q.batch_ids)
        n, none_known = num_columns(A), np.zeros(k + 1, np.int64)
        sets = ColumnSets(self.device, none_known, batches, n, index_variant(A.indices))
        refused = self.device.zeros(1, np.int64)
        arguments = (*self._merged_entries(work, batches), *sets.parameters, work.ends, n, refused)
        self.run(MARK, self.device.resident_warps(), *arguments, variant=variant_of(A))
        pointers = sets.rank()
        host = self.device.to_host(self.device.concatenate([pointers, refused]))
        if host[-1]:
            raise _refused_columns()
        return _Group(batches[0], sets, pointers, host[:-1])

    def _merged_part(self, work: _Work, group: _Group, part: tuple[int, int]) -> Merged:
        """The columns and numerators of batches of a group, numbered from the group's first."""
        A = work.A
        first, last = part
        indptr = group.host_ends[first : last + 1] - group.host_ends[first]
        pointers = group.ends[first : last + 1] - int(group.host_ends[first])
        columns = self.device.empty(int(indptr[-1]), A.indices.dtype)
        numerators = self.device.zeros(int(indptr[-1]), np.uint64)
        table, slots, known_ptr, places = group.sets.parameters
        sets = (table[first * slots * 4 :], slots, known_ptr[first:], places)
        chunks = (last - first) * slots // 32
        self.run(PLACE_NEW, chunks, *sets, chunks, pointers, columns, variant=index_variant(A.indices))
        batches = (group.first + first, group.first + last)
        arguments = (*self._merged_entries(work, batches), *sets, work.ends, pointers, numerators)
        self.run(ADD, self.device.resident_warps(), *arguments, variant=variant_of(A))
        self._raise_columns(work.rule.column_power, numerators)
        return Merged(*batches, indptr, columns, numerators)

    def _merged_entries(self, work: _Work, batches: tuple[int, int]) -> tuple[object, ...]:
        """Parameters of the entries of some batches and of their numerators."""
        first, last = batches
        pointers, vertices, ids, _, rows = self.selector(work.Q)
        some = (pointers[first : last + 1], vertices, ids[first:last], last - first, rows)
        shifts, power = self._rule(work.rule)
        rule = (None if shifts is None else shifts[first:last], power)
        return (*self.matrix(work.A), *self.weights(work.A), *some, *rule)

    def _rule(self, rule: QuantisationRule) -> tuple[Any, ...]:
        """Parameters of the rule by which entries get their numerators."""
        return (None if rule.shifts is None else self.uploaded(rule.shifts), rule.power)

    def _raise_columns(self, column_power: int, sums: DeviceArray) -> None:
        """The sums to the column power (1 or 2), in place."""
        if column_power == 2:
            self.run(SQUARE, len(sums), len(sums), sums)


def _fitting(device: Device, ends: Int64Array) -> Iterator[tuple[int, int]]:
    """Consecutive batches of a group, of which the columns fit in memory together; always at least one."""
    most = device.scratch_bytes() // COLUMN_BYTES
    first, count = 0, len(ends) - 1
    while first < count:
        last = int(np.searchsorted(ends, ends[first] + most, side="right")) - 1
        last = min(max(last, first + 1), count)
        yield first, last
        first = last


def joined(device: Device, parts: list[DeviceArray], empty: DeviceArray) -> DeviceArray:
    """The parts one after the other; `empty` where there are none."""
    if len(parts) == 1:
        return parts[0]
    return device.concatenate(parts) if parts else empty


def _refused_columns() -> ValueError:
    """The error of columns that are not below the number of columns."""
    return ValueError("indices: a column is not below the number of columns")
