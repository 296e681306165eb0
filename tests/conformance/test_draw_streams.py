"""The ways in which kernels ask a stream for a draw: all give the same integer, however many words are rejected."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from needs import COMPILER

pytestmark = pytest.mark.needs("c++")

INCLUDE = Path(__file__).parents[2] / "kernels" / "include"

PROGRAM = """
#include <cstdio>
#include "spsample/philox.h"

using namespace spsample;

// Draws of a stream that `below`, `below` with its rejected words and `one_below` do not agree on.
static int differing(uint64_t initial_total, uint64_t t) {
    const PhiloxKey key = {0x243F6A88u, 0x85A308D3u};
    DrawStream kept(key, 77, 3, 5, initial_total);
    const DrawStream stream(key, 77, 3, 5, initial_total);
    const uint64_t rejected = stream.rejected_below(t);
    int result = 0;
    for (int64_t draw = 0; draw < 400; ++draw) {
        const uint64_t expected = kept.below(draw, t);
        result += expected >= t || stream.below(draw, t, rejected) != expected || stream.one_below(draw, t) != expected;
    }
    return result;
}

int main() {
    const uint64_t limit = kNarrowLimit, most = ~uint64_t(0);
    const uint64_t totals[] = {1, 2, 3, 1000, limit / 2 - 1, limit / 2, limit / 2 + 1, limit / 3 * 2, limit - 1, limit,
                               limit + 1, most / 3, most / 2, most / 2 + 1, most / 2 + 2, most / 3 * 2, most - 1, most};
    int result = 0;
    for (const uint64_t total : totals) {
        for (const uint64_t t : totals) result += t <= total ? differing(total, t) : 0;
    }
    std::printf("%d", result);
}
"""


def test_ways_to_draw_agree(tmp_path):
    """Among totals of which nearly half of all words are rejected, and of which none is."""
    source, program = tmp_path / "draws.cpp", tmp_path / "draws"
    source.write_text(PROGRAM)
    subprocess.run([COMPILER, "-std=c++17", "-O1", f"-I{INCLUDE}", str(source), "-o", str(program)], check=True)
    assert subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout == "0"
