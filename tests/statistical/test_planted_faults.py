"""Plants likely faults into copies of the reference, and sees the suite's own checks catch each of them.

An unchanged copy passes every one of these checks: they are the functions of `checks.py` that the other tests run on
the backends that ship.
"""

from __future__ import annotations

import faults
import laws
import pytest

pytestmark = pytest.mark.statistical

DRAWS = 1000
FAULTS = [
    *faults.FIRST_AND_LAST,
    *faults.RANDOM_BITS,
    *faults.DUPLICATES,
    *faults.PROBABILITIES,
    *faults.VALUES,
]
named = {"ids": lambda fault: fault.name.replace(" ", "-")}


def run(fault, backend):
    """The fault's check, as the suite judges it."""
    assert fault.check(backend, DRAWS) > laws.SMALLEST_P, "the frequencies do not fit the law"


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """A copy of the reference without a fault."""
    return faults.copy_of_reference(tmp_path_factory.mktemp("unchanged"))


@pytest.mark.parametrize("fault", FAULTS, **named)
def test_an_unchanged_copy_passes(unchanged, fault):
    run(fault, unchanged)


@pytest.mark.parametrize("fault", FAULTS, **named)
def test_fault_is_caught(tmp_path, fault):
    backend = faults.copy_of_reference(tmp_path, fault.module, fault.old, fault.new)
    with pytest.raises(AssertionError):
        run(fault, backend)


def test_a_fault_that_no_longer_fits_is_told(tmp_path):
    """A planted text that the source does not hold must not pass for a fault that was caught."""
    with pytest.raises(AssertionError, match="adapt the planted fault"):
        faults.copy_of_reference(tmp_path, "row_law", "no such text", "")
