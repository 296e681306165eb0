"""Constants of the law stand in two places, the kernels' headers and Python: they are the same."""

from __future__ import annotations

import re

import pytest

from spsample.backends.cuda import extraction, row_law_weighted_sums
from spsample.backends.cuda.device import WARP
from spsample.backends.cuda.sources import kernel_folder
from spsample.backends.protocol import NO_EXPONENT
from spsample.backends.reference.quantisation import NARROW_BITS, PRECISE_BITS, WIDE_BITS
from spsample.backends.reference.random import LAST_ATTEMPT, NARROW_LIMIT, ROUND_DRAWS
from spsample.sparse.probability import HEADROOM_BITS

IN_PYTHON = {
    "quantisation.h": {
        "kNarrowBits": NARROW_BITS,
        "kWideBits": WIDE_BITS,
        "kPreciseBits": PRECISE_BITS,
        "kNoExponent": NO_EXPONENT,
    },
    "philox.h": {"kNarrowLimit": NARROW_LIMIT, "kLastAttempt": LAST_ATTEMPT, "kRoundDraws": ROUND_DRAWS},
}


@pytest.mark.parametrize("header", IN_PYTHON)
def test_constants_of_the_law(header):
    text = (kernel_folder() / "include" / "spsample" / header).read_text()
    found = dict(re.findall(r"^constexpr \w+ (k\w+) = (.+?);", text, re.MULTILINE))
    values = {name: eval(found[name].replace("uint64_t(1)", "1"), {}) for name in IN_PYTHON[header]}
    assert values == IN_PYTHON[header]


IN_CUDA = {
    ("extraction_frontier.h", "kUnit"): extraction.UNIT,
    ("extraction_sources.h", "kMostFilterWords"): extraction.MOST_FILTER_BITS // 32,
    ("row_law_weighted_summed.h", "kSumsEvery"): row_law_weighted_sums.SUMS_EVERY,
}


@pytest.mark.parametrize(("header", "name"), IN_CUDA)
def test_constants_of_cuda_kernels(header, name):
    assert constant_of(header, name) == IN_CUDA[header, name]


def test_a_block_marks_a_tile():
    names = ("kTileWarps", "kSpanUnits")
    warps, units = (constant_of("extraction_frontier.h", name) for name in names)
    assert (warps * WARP, warps * units) == (extraction.MARK.block, extraction.TILE_UNITS)


def constant_of(header, name):
    text = (kernel_folder() / "cuda" / header).read_text()
    return eval(re.search(rf"^constexpr \w+ {name} = (.+?);", text, re.MULTILINE)[1], {})


def test_no_sum_of_numerators_passes_the_wide_bits():
    """The column power 2 squares sums."""
    assert {power: power * bits for power, bits in HEADROOM_BITS.items()} == {1: WIDE_BITS, 2: WIDE_BITS}
    assert NARROW_LIMIT == 2**NARROW_BITS
