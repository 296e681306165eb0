// sparse_products.h in AVX2: up to twelve registers of sums at a time (lanes_avx2.h says how such a file is compiled).
#include "sparse_products.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

using namespace avx2;

constexpr int64_t kLane = 8;

// Count registers of each row, from a tile of `width` numbers a row. Returns how many columns that are.
template <int Count>
SPSAMPLE_AVX2_INLINE int64_t add_columns(const TileLists& lists, const float* tile, int64_t width, float* sums, int64_t stride) {
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
    return Count * kLane;
}

// Of the `rest` of the columns as many as there are registers for, two at least. Returns how many.
SPSAMPLE_AVX2_INLINE int64_t add_some(
    const TileLists& lists, const float* tile, int64_t width, int64_t rest, float* sums, int64_t stride) {
    if (rest == 12 * kLane) return add_columns<12>(lists, tile, width, sums, stride);
    if (rest == 10 * kLane) return add_columns<10>(lists, tile, width, sums, stride);
    if (rest >= 8 * kLane) return add_columns<8>(lists, tile, width, sums, stride);
    if (rest >= 6 * kLane) return add_columns<6>(lists, tile, width, sums, stride);
    if (rest >= 4 * kLane) return add_columns<4>(lists, tile, width, sums, stride);
    return add_columns<2>(lists, tile, width, sums, stride);
}

// The lanes of `numbers` that are loaded: all where there are so many, else the first `count`.
SPSAMPLE_AVX2_INLINE __m256 load_some(const float* numbers, int64_t count) {
    if (count >= kLane) return _mm256_loadu_ps(numbers);
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(numbers, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes));
}

// Writes the lanes of x that are not 0, `place` of lane 0, and their numbers. Room for all lanes.
SPSAMPLE_AVX2_INLINE int64_t pack(__m256 x, int64_t place, uint32_t* places, float* values) {
    const unsigned kept = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NEQ_UQ)));
    const __m256i lanes = lanes_in(kept);
    const __m256i all = _mm256_add_epi32(lanes, _mm256_set1_epi32(static_cast<int>(place)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(places), all);
    _mm256_storeu_ps(values, _mm256_permutevar8x32_ps(x, lanes));
    return _mm_popcnt_u32(kept);
}

// Row r of `rows` is column r of what it was.
SPSAMPLE_AVX2_INLINE void transpose(__m256 (&rows)[kLane]) {
    __m256 pairs[kLane];
#pragma GCC unroll 4
    for (int i = 0; i < kLane; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
        const __m256d low[] = {_mm256_castps_pd(pairs[j]), _mm256_castps_pd(pairs[j + 4])};
        const __m256d high[] = {_mm256_castps_pd(pairs[j + 2]), _mm256_castps_pd(pairs[j + 6])};
        const __m256 even = _mm256_castpd_ps(_mm256_unpacklo_pd(low[0], high[0])), odd = _mm256_castpd_ps(_mm256_unpackhi_pd(low[0], high[0]));
        const __m256 later_even = _mm256_castpd_ps(_mm256_unpacklo_pd(low[1], high[1]));
        const __m256 later_odd = _mm256_castpd_ps(_mm256_unpackhi_pd(low[1], high[1]));
        rows[2 * j] = _mm256_permute2f128_ps(even, later_even, 0x20);
        rows[2 * j + 1] = _mm256_permute2f128_ps(odd, later_odd, 0x20);
        rows[4 + 2 * j] = _mm256_permute2f128_ps(even, later_even, 0x31);
        rows[4 + 2 * j + 1] = _mm256_permute2f128_ps(odd, later_odd, 0x31);
    }
}

}  // namespace

SPSAMPLE_AVX2 void add_tile_avx2(const TileLists& lists, const Tile& tile, float* sums, int64_t stride) {
    for (int64_t column = 0; column < tile.width;) column += add_some(lists, tile.numbers + column, tile.width, tile.width - column, sums + column, stride);
}

SPSAMPLE_AVX2 int64_t find_numbers_avx2(const float* numbers, int64_t count, uint32_t* places, float* values) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i += kLane) found += pack(load_some(numbers + i, count - i), i, places + found, values + found);
    return found;
}

SPSAMPLE_AVX2 void list_columns_avx2(
    const float* numbers, int64_t rows, int64_t width, uint32_t* places, float* values, uint32_t* counts) {
    for (int64_t column = 0; column < width; column += kLane) {
        const int64_t columns = width - column < kLane ? width - column : kLane;
        int64_t found[kLane] = {};
        for (int64_t begin = 0; begin < rows; begin += kLane) {
            __m256 block[kLane];
#pragma GCC unroll 8
            for (int64_t r = 0; r < kLane; ++r) {
                block[r] = begin + r < rows ? load_some(numbers + (begin + r) * width + column, columns) : _mm256_setzero_ps();
            }
            transpose(block);
#pragma GCC unroll 8
            for (int64_t c = 0; c < kLane; ++c) {
                if (c >= columns) break;
                const int64_t to = kListRoom * (column + c) + found[c];
                found[c] += pack(block[c], begin, places + to, values + to);
            }
        }
        for (int64_t c = 0; c < columns; ++c) counts[column + c] = static_cast<uint32_t>(found[c]);
    }
}

}  // namespace spsample

#endif
