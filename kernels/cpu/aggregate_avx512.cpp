// aggregate.h in AVX-512: up to eight registers of sums at a time (lanes_avx512.h says how such a file is compiled).
#include "aggregate.h"

#include <algorithm>

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

constexpr int64_t kLane = 16, kMost = 8;

// Columns from `column` on of one row: Count registers, of the last one the lanes of `last`.
template <int Count>
SPSAMPLE_AVX512_INLINE void sum_columns(const RowSums<float>& sums, int64_t r, int64_t column, __mmask16 last, float* out) {
    __m512 sum[Count];
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) sum[i] = _mm512_setzero_ps();
    for (int64_t e = sums.indptr[r]; e < sums.indptr[r + 1]; ++e) {
        if (column == 0) sums.fetch_ahead_of(e);
        const float* const row = sums.source(e) + column;
        const __m512 value = _mm512_set1_ps(sums.values[e]);
#pragma GCC unroll 8
        for (int i = 0; i < Count; ++i) {
            const __m512 x = i + 1 < Count ? _mm512_loadu_ps(row + kLane * i) : _mm512_maskz_loadu_ps(last, row + kLane * i);
            sum[i] = _mm512_add_ps(sum[i], _mm512_mul_ps(value, x));
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i + 1 < Count; ++i) _mm512_storeu_ps(out + column + kLane * i, sum[i]);
    _mm512_mask_storeu_ps(out + column + kLane * (Count - 1), last, sum[Count - 1]);
}

SPSAMPLE_AVX512_INLINE void sum_piece(const RowSums<float>& sums, int64_t r, int64_t column, int64_t width, float* out) {
    const int64_t registers = (width + kLane - 1) / kLane;
    const __mmask16 last = static_cast<__mmask16>(0xFFFF >> (registers * kLane - width));
    switch (registers) {
        case 1: return sum_columns<1>(sums, r, column, last, out);
        case 2: return sum_columns<2>(sums, r, column, last, out);
        case 3: return sum_columns<3>(sums, r, column, last, out);
        case 4: return sum_columns<4>(sums, r, column, last, out);
        case 5: return sum_columns<5>(sums, r, column, last, out);
        case 6: return sum_columns<6>(sums, r, column, last, out);
        case 7: return sum_columns<7>(sums, r, column, last, out);
        default: return sum_columns<8>(sums, r, column, last, out);
    }
}

}  // namespace

SPSAMPLE_AVX512 void sum_rows_avx512(const RowSums<float>& sums, int64_t begin, int64_t end, float* out) {
    for (int64_t r = begin; r < end; ++r) {
        for (int64_t column = 0; column < sums.dim; column += kMost * kLane) {
            sum_piece(sums, r, column, std::min(sums.dim - column, kMost * kLane), out + r * sums.stride);
        }
    }
}

}  // namespace spsample

#endif
