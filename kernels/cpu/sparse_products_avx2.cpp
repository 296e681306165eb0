// sparse_products.h in AVX2: up to twelve registers of sums at a time (lanes_avx2.h says how such a file is compiled).
#include "sparse_products.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

using namespace avx2;

constexpr int64_t kLane = 8;

// Count registers of each row, from a tile of `width` numbers a row.
template <int Count>
SPSAMPLE_AVX2_INLINE void add_columns(const TileLists& lists, const float* tile, int64_t width, float* sums, int64_t stride) {
    for (int64_t i = 0; i < lists.count; ++i) {
        const uint32_t* const rows = lists.rows + kListRoom * i;
        const float* const values = lists.values + kListRoom * i;
        float* const to = sums + stride * i;
        __m256 sum[Count];
#pragma GCC unroll 12
        for (int j = 0; j < Count; ++j) sum[j] = _mm256_loadu_ps(to + kLane * j);
        for (uint32_t e = 0; e < lists.counts[i]; ++e) {
            const float* const row = tile + rows[e] * width;
            const __m256 value = _mm256_set1_ps(values[e]);
#pragma GCC unroll 12
            for (int j = 0; j < Count; ++j) sum[j] = _mm256_add_ps(sum[j], _mm256_mul_ps(value, _mm256_loadu_ps(row + kLane * j)));
        }
#pragma GCC unroll 12
        for (int j = 0; j < Count; ++j) _mm256_storeu_ps(to + kLane * j, sum[j]);
    }
}

// For each set of eight lanes the lanes that it has, one after the other.
struct Packings {
    alignas(32) uint32_t lanes[256][kLane];

    Packings() {
        for (uint32_t set = 0; set < 256; ++set) {
            uint32_t found = 0;
            for (uint32_t lane = 0; lane < kLane; ++lane) {
                if (set >> lane & 1) lanes[set][found++] = lane;
            }
            for (; found < kLane; ++found) lanes[set][found] = 0;
        }
    }
};

const Packings kPackings;

// The lanes of `numbers` that are loaded: all where there are so many, else the first `count`.
SPSAMPLE_AVX2_INLINE __m256 load_some(const float* numbers, int64_t count) {
    if (count >= kLane) return _mm256_loadu_ps(numbers);
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(numbers, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes));
}

template <bool Masked>
SPSAMPLE_AVX2_INLINE int64_t find(const SparseRow& row, int64_t count, uint32_t* places, float* values) {
    const __m256 zero = _mm256_setzero_ps(), scale = _mm256_set1_ps(row.scale);
    int64_t found = 0;
    for (int64_t i = 0; i < count; i += kLane) {
        __m256 x = load_some(row.numbers + i, count - i);
        unsigned kept;
        if constexpr (Masked) {
            kept = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(load_some(row.where + i, count - i), zero, _CMP_NLE_UQ)));
            x = _mm256_mul_ps(x, scale);
        } else {
            kept = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(x, zero, _CMP_NEQ_UQ)));
        }
        const __m256i lanes = load(kPackings.lanes[kept]);
        const __m256i place = _mm256_add_epi32(lanes, _mm256_set1_epi32(static_cast<int>(i)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(places + found), place);
        _mm256_storeu_ps(values + found, _mm256_permutevar8x32_ps(x, lanes));
        found += _mm_popcnt_u32(kept);
    }
    return found;
}

}  // namespace

SPSAMPLE_AVX2 void add_tile_avx2(const TileLists& lists, const Tile& tile, float* sums, int64_t stride) {
    int64_t column = 0;
    for (; column + 12 * kLane <= tile.width; column += 12 * kLane) add_columns<12>(lists, tile.numbers + column, tile.width, sums + column, stride);
    for (; column + 8 * kLane <= tile.width; column += 8 * kLane) add_columns<8>(lists, tile.numbers + column, tile.width, sums + column, stride);
    for (; column + 4 * kLane <= tile.width; column += 4 * kLane) add_columns<4>(lists, tile.numbers + column, tile.width, sums + column, stride);
    for (; column + 2 * kLane <= tile.width; column += 2 * kLane) add_columns<2>(lists, tile.numbers + column, tile.width, sums + column, stride);
}

SPSAMPLE_AVX2 int64_t find_numbers_avx2(const SparseRow& row, int64_t count, uint32_t* places, float* values) {
    return row.where ? find<true>(row, count, places, values) : find<false>(row, count, places, values);
}

}  // namespace spsample

#endif
