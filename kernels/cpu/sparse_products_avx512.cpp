// sparse_products.h in AVX-512: up to eight registers of sums at a time (lanes_avx512.h says how such a file is compiled).
#include "sparse_products.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

constexpr int64_t kLane = 16;

template <int Count>
SPSAMPLE_AVX512_INLINE void add_lists(const TileLists& lists, const float* tile, float* sums, int64_t stride) {
    for (int64_t i = 0; i < lists.count; ++i) {
        const uint32_t* const rows = lists.rows + kListRoom * i;
        const float* const values = lists.values + kListRoom * i;
        float* const to = sums + stride * i;
        __m512 sum[Count];
#pragma GCC unroll 8
        for (int j = 0; j < Count; ++j) sum[j] = _mm512_loadu_ps(to + kLane * j);
        for (uint32_t e = 0; e < lists.counts[i]; ++e) {
            const float* const row = tile + rows[e] * (kLane * Count);
            const __m512 value = _mm512_set1_ps(values[e]);
#pragma GCC unroll 8
            for (int j = 0; j < Count; ++j) sum[j] = _mm512_add_ps(sum[j], _mm512_mul_ps(value, _mm512_loadu_ps(row + kLane * j)));
        }
#pragma GCC unroll 8
        for (int j = 0; j < Count; ++j) _mm512_storeu_ps(to + kLane * j, sum[j]);
    }
}

// The first `count` lanes, all where there are so many.
SPSAMPLE_AVX512_INLINE __mmask16 first_lanes(int64_t count) {
    return count < kLane ? static_cast<__mmask16>((1u << count) - 1) : static_cast<__mmask16>(0xFFFF);
}

// Writes the lanes of x that are not 0, `place` of lane 0, and their numbers. Room for all lanes.
SPSAMPLE_AVX512_INLINE uint32_t pack(__m512 x, int64_t place, uint32_t* places, float* values) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    _mm512_storeu_si512(places, _mm512_maskz_compress_epi32(kept, _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(place)))));
    _mm512_storeu_ps(values, _mm512_maskz_compress_ps(kept, x));
    return static_cast<uint32_t>(_mm_popcnt_u32(kept));
}

// Row r of `rows` is column r of what it was.
SPSAMPLE_AVX512_INLINE void transpose(__m512 (&rows)[kLane]) {
    __m512 pairs[kLane], quads[kLane];
#pragma GCC unroll 8
    for (int i = 0; i < kLane; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kLane; i += 4) {  // quads[i + j]: column 4 q + j of the rows i .. i + 3 in its quarter q
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            const __m512d low = _mm512_castps_pd(pairs[i + j]), high = _mm512_castps_pd(pairs[i + j + 2]);
            quads[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            quads[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512 even = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0x88), odd = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0xdd);
        const __m512 later_even = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0x88);
        const __m512 later_odd = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0xdd);
        rows[j] = _mm512_shuffle_f32x4(even, later_even, 0x88);
        rows[4 + j] = _mm512_shuffle_f32x4(odd, later_odd, 0x88);
        rows[8 + j] = _mm512_shuffle_f32x4(even, later_even, 0xdd);
        rows[12 + j] = _mm512_shuffle_f32x4(odd, later_odd, 0xdd);
    }
}

}  // namespace

SPSAMPLE_AVX512 void add_tile_avx512(const TileLists& lists, const Tile& tile, float* sums, int64_t stride) {
    switch (tile.width / kLane) {
        case 1: return add_lists<1>(lists, tile.numbers, sums, stride);
        case 2: return add_lists<2>(lists, tile.numbers, sums, stride);
        case 3: return add_lists<3>(lists, tile.numbers, sums, stride);
        case 4: return add_lists<4>(lists, tile.numbers, sums, stride);
        case 5: return add_lists<5>(lists, tile.numbers, sums, stride);
        case 6: return add_lists<6>(lists, tile.numbers, sums, stride);
        case 7: return add_lists<7>(lists, tile.numbers, sums, stride);
        default: return add_lists<8>(lists, tile.numbers, sums, stride);
    }
}

SPSAMPLE_AVX512 int64_t find_numbers_avx512(const float* numbers, int64_t count, uint32_t* places, float* values) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i += kLane) {
        found += pack(_mm512_maskz_loadu_ps(first_lanes(count - i), numbers + i), i, places + found, values + found);
    }
    return found;
}

SPSAMPLE_AVX512 void list_columns_avx512(
    const float* numbers, int64_t rows, int64_t width, uint32_t* places, float* values, uint32_t* counts) {
    for (int64_t column = 0; column < width; column += kLane) {
        const int64_t columns = width - column < kLane ? width - column : kLane;
        const __mmask16 there = first_lanes(columns);
        uint32_t found[kLane] = {};
        for (int64_t begin = 0; begin < rows; begin += kLane) {
            __m512 block[kLane];
#pragma GCC unroll 16
            for (int64_t r = 0; r < kLane; ++r) {
                block[r] = begin + r < rows ? _mm512_maskz_loadu_ps(there, numbers + (begin + r) * width + column) : _mm512_setzero_ps();
            }
            transpose(block);
#pragma GCC unroll 16
            for (int64_t c = 0; c < kLane; ++c) {
                if (c >= columns) break;
                const int64_t to = kListRoom * (column + c) + found[c];
                found[c] += pack(block[c], begin, places + to, values + to);
            }
        }
        for (int64_t c = 0; c < columns; ++c) counts[column + c] = found[c];
    }
}

}  // namespace spsample

#endif
