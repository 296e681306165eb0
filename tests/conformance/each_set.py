"""Every instruction set that this machine has, one after the other, and equality of what kernels return."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

from spsample.backends import StackedSelector  # noqa: E402
from spsample.backends.cpu import CpuBackend  # noqa: E402
from spsample.backends.reference import ReferenceBackend  # noqa: E402

CPU, REFERENCE = CpuBackend(), ReferenceBackend()


@contextmanager
def instruction_set(name):
    before = core.instruction_set()
    assert core.set_instruction_set(name)
    try:
        yield
    finally:
        core.set_instruction_set(before)


def available():
    before = core.instruction_set()
    names = [name for name in ("portable", "avx2", "avx512") if core.set_instruction_set(name)]
    core.set_instruction_set(before)
    return names


SETS = available()
each_set = pytest.mark.parametrize("name", SETS)


def pointers(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def assert_equal(one, other):
    for field, a, b in zip(one._fields, one, other, strict=True):
        assert (a is None) == (b is None), field
        if a is not None:
            assert a.dtype == b.dtype, field
            np.testing.assert_array_equal(a, b, err_msg=field)


def assert_compacts(name, targets, columns, index, include_targets):
    """As the reference does, of the targets and the columns of each batch."""
    Q = StackedSelector(
        pointers([len(x) for x in targets]), np.concatenate(targets).astype(index), np.arange(len(targets))
    )
    entries = pointers([len(x) for x in columns])
    flat = np.concatenate(columns).astype(index)
    expected = REFERENCE.compact(Q, entries, flat, include_targets)
    with instruction_set(name):
        assert_equal(CPU.compact(Q, entries, flat, include_targets), expected)
