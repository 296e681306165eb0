"""Amounts of memory as people write them."""

from __future__ import annotations

import pytest

from spsample.common.units import format_bytes, require_bytes
from spsample.errors import DTypeError, InputError


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("7B", 7), ("2GiB", 2**31), ("2G", 2**31), ("2 GB", 2 * 10**9), (" .5kB ", 500), ("1.5MiB", 3 << 19)],
)
def test_require_bytes(text, size):
    assert require_bytes("memory_budget", text) == size
    assert require_bytes("memory_budget", size) == size


def test_large_amounts_are_exact():
    assert require_bytes("memory_budget", f"{2**61 - 1}") == 2**61 - 1


@pytest.mark.parametrize("text", ["", "GiB", "2 gigabytes", "-1", "1e9", "0", "0.2B", "inf", "1.2.3M", "2gib"])
def test_other_words_are_refused(text):
    with pytest.raises(InputError, match="memory_budget"):
        require_bytes("memory_budget", text)


@pytest.mark.parametrize("value", [0, -5, True, 1.5, None, b"2"])
def test_other_values_are_refused(value):
    with pytest.raises((InputError, DTypeError), match="memory_budget"):
        require_bytes("memory_budget", value)


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (2**10, "1.00 KiB"), (5 * 2**40, "5.00 TiB")])
def test_format_bytes(size, text):
    assert format_bytes(size) == text
