"""R-MAT graphs made on the GPU: the pairs of `spsample.data.rmat`, bit for bit, sorted into CSR in bounded memory.

A word of the generator's stream is a function of its place, so every pair is made where it is needed, as often as it is
needed. `host_pairs` makes them with NumPy, `device_pairs` in an elementwise kernel of CuPy; the rest is the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from spsample.data import rmat as host_rmat
from spsample.data.philox import PhiloxStream

Array = Any
"""An array of NumPy or of CuPy."""

PAIRS_AT_ONCE = 1 << 24
MOST_ENTRIES = 1 << 28
"""Entries that are sorted at once: 8 bytes each, and as much again twice while they are."""

BIN_BITS = 12
"""Rows are split by this many leading bits: a bin of a graph of 2^27 vertices has 4 % of the entries at most."""


class Csr(NamedTuple):
    """`indptr` (n + 1) int64 and `indices`, ascending in each row, int32."""

    indptr: Array
    indices: Array


class PairSource(NamedTuple):
    """Where pairs come from: `pairs(scale, total, piece)` are (sources, targets) of a slice of `total` pairs."""

    xp: Any
    pairs: Callable[[int, int, slice], tuple[Array, Array]]
    release: Callable[[], None]
    """Gives memory back that is kept for later."""


def rmat_csr(scale: int, edge_factor: int, source: PairSource, most_entries: int = MOST_ENTRIES) -> Csr:
    """The graph of `load_dataset("rmat:SCALE,EDGE_FACTOR")`: both directions, no self loops, no duplicates.

    Rows are made range by range, each of at most `most_entries` entries or of one bin, and the pairs are made anew for
    each range. Memory: the result, 24 bytes for each entry of a range, and some for the pairs at hand.
    """
    xp, n = source.xp, 1 << scale
    counts = _bin_counts(scale, edge_factor, source)
    indptr = xp.zeros(n + 1, np.int64)
    indices = xp.empty(int(counts.sum()), np.int32)
    done = 0
    for rows, count in _ranges(counts, scale, most_entries):
        keys = _distinct_keys(scale, edge_factor, source, rows, count)
        starts = xp.arange(rows.start + 1, rows.stop + 1, dtype=np.int64) << scale
        indptr[rows.start + 1 : rows.stop + 1] = xp.searchsorted(keys, starts) + done
        indices[done : done + len(keys)] = (keys & (n - 1)).astype(np.int32)
        done += len(keys)
        del keys, starts
        source.release()
    return Csr(indptr, indices[:done])


def _bin_counts(scale: int, edge_factor: int, source: PairSource) -> np.ndarray:
    """Entries of each bin of rows, duplicates included; on the host."""
    bits = min(scale, BIN_BITS)
    counts = source.xp.zeros(1 << bits, np.int64)
    for a, b in _pairs(scale, edge_factor, source):
        for targets in (a, b):
            counts += source.xp.bincount(targets >> (scale - bits), minlength=1 << bits)
    return np.array(counts.tolist(), np.int64)


def _ranges(counts: np.ndarray, scale: int, most: int) -> Iterator[tuple[slice, int]]:
    """Ranges of rows, of consecutive bins that have at most so many entries together, and how many they have."""
    rows_per_bin = (1 << scale) // len(counts)
    first, total = 0, 0
    for number, count in enumerate(counts.tolist()):
        if number > first and total + count > most:
            yield slice(first * rows_per_bin, number * rows_per_bin), total
            first, total = number, 0
        total += count
    yield slice(first * rows_per_bin, len(counts) * rows_per_bin), total


def _distinct_keys(scale: int, edge_factor: int, source: PairSource, rows: slice, count: int) -> Array:
    """target * n + source of all entries of a range of rows, ascending and distinct."""
    xp, keys, filled = source.xp, source.xp.empty(count, np.int64), 0
    for a, b in _pairs(scale, edge_factor, source):
        for targets, sources in ((a, b), (b, a)):
            inside = (targets >= rows.start) & (targets < rows.stop)
            found = (targets[inside] << scale) | sources[inside]
            keys[filled : filled + len(found)] = found
            filled += len(found)
    keys.sort()
    is_new = xp.ones(count, np.bool_)
    is_new[1:] = keys[1:] != keys[:-1]
    return keys[is_new]


def _pairs(scale: int, edge_factor: int, source: PairSource) -> Iterator[tuple[Array, Array]]:
    """All pairs but self loops, some at a time."""
    total = edge_factor << scale
    for begin in range(0, total, PAIRS_AT_ONCE):
        a, b = source.pairs(scale, total, slice(begin, min(begin + PAIRS_AT_ONCE, total)))
        differ = a != b
        yield a[differ], b[differ]


# --- where pairs come from --------------------------------------------------------------------------------------------


def host_pairs(random_seed: int = 0) -> PairSource:
    """Pairs by NumPy."""

    def pairs(scale: int, total: int, piece: slice) -> tuple[Array, Array]:
        return host_rmat.rmat_piece(scale, total, piece, PhiloxStream(random_seed))

    return PairSource(np, pairs, lambda: None)


def device_pairs(random_seed: int = 0) -> PairSource:
    """Pairs by an elementwise kernel on the GPU that is current."""
    import cupy

    kernel = cupy.ElementwiseKernel(
        "int64 first, int64 total, int64 scale, uint64 key0, uint64 key1",
        "int64 from, int64 to",
        "rmat_pair(first + i, total, scale, key0, key1, from, to)",
        "spsample_bench_rmat_pair",
        preamble=device_code(),
    )
    keys = philox_key(random_seed)

    def pairs(scale: int, total: int, piece: slice) -> tuple[Array, Array]:
        made: tuple[Array, Array] = kernel(piece.start, total, scale, *keys, size=piece.stop - piece.start)
        return made

    return PairSource(cupy, pairs, cupy.get_default_memory_pool().free_all_blocks)


def philox_key(random_seed: int) -> tuple[np.uint64, np.uint64]:
    """The key of `PhiloxStream(random_seed)`."""
    first, second = np.random.SeedSequence(random_seed).generate_state(2, np.uint64)
    return first, second


def device_code() -> str:
    """`rmat_pair`: pair p of a stream of `total` pairs, by Philox4x64-10; word w is word w % 4 of block w / 4 + 1.

    Uniform numbers are multiples of 2^-53, so that they are compared as integers.
    """
    a, b, c = host_rmat._A, host_rmat._B, host_rmat._C
    limits = {"RIGHT": a, "LOWER": a + b, "BOTH": a + b + c}
    defines = [f"#define RMAT_{name} {int(limit * 2**53)}ull" for name, limit in limits.items()]
    return "\n".join([*defines, f"#define RMAT_CHUNK {host_rmat._CHUNK}ll", _CODE])


_CODE = """
__device__ inline unsigned long long philox_word(unsigned long long word, unsigned long long key0,
                                                 unsigned long long key1) {
    unsigned long long c0 = word / 4 + 1, c1 = 0, c2 = 0, c3 = 0;
    for (int round = 0; round < 10; ++round) {
        const unsigned long long high0 = __umul64hi(0xD2E7470EE14C6C93ull, c0), low0 = 0xD2E7470EE14C6C93ull * c0;
        const unsigned long long high2 = __umul64hi(0xCA5A826395121157ull, c2), low2 = 0xCA5A826395121157ull * c2;
        c0 = high2 ^ c1 ^ key0;
        c1 = low2;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9E3779B97F4A7C15ull;
        key1 += 0xBB67AE8584CAA73Bull;
    }
    const int place = (int)(word % 4);
    return place == 0 ? c0 : place == 1 ? c1 : place == 2 ? c2 : c3;
}

__device__ inline void rmat_pair(long long pair, long long total, long long scale, unsigned long long key0,
                                 unsigned long long key1, long long& from, long long& to) {
    const long long start = pair - pair % RMAT_CHUNK;
    const long long length = total - start < RMAT_CHUNK ? total - start : RMAT_CHUNK;
    from = to = 0;
    for (long long level = 0; level < scale; ++level) {
        const unsigned long long u = philox_word(start * scale + level * length + pair - start, key0, key1) >> 11;
        const bool lower = u >= RMAT_LOWER;
        const bool right = (u >= RMAT_RIGHT && !lower) || u >= RMAT_BOTH;
        from = 2 * from + lower;
        to = 2 * to + right;
    }
}
"""
