// aggregate.h in AVX2: up to eight registers of sums at a time (lanes_avx2.h says how such a file is compiled).
#include "aggregate.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

constexpr int64_t kLane = 8;

// Columns from `column` on of one row: Count whole registers.
template <int Count>
SPSAMPLE_AVX2_INLINE void sum_columns(const RowSums<float>& sums, int64_t r, int64_t column, float* out) {
    __m256 sum[Count];
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) sum[i] = _mm256_setzero_ps();
    for (int64_t e = sums.indptr[r]; e < sums.indptr[r + 1]; ++e) {
        if (column == 0) sums.fetch_ahead_of(e);
        const float* const row = sums.source(e) + column;
        const __m256 value = _mm256_set1_ps(sums.values[e]);
#pragma GCC unroll 8
        for (int i = 0; i < Count; ++i) sum[i] = _mm256_add_ps(sum[i], _mm256_mul_ps(value, _mm256_loadu_ps(row + kLane * i)));
    }
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) _mm256_storeu_ps(out + column + kLane * i, sum[i]);
}

// What fills no register.
SPSAMPLE_AVX2_INLINE void sum_rest(const RowSums<float>& sums, int64_t r, int64_t column, float* out) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i rest = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(sums.dim - column)), lanes);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t e = sums.indptr[r]; e < sums.indptr[r + 1]; ++e) {
        if (column == 0) sums.fetch_ahead_of(e);
        const __m256 x = _mm256_maskload_ps(sums.source(e) + column, rest);
        sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_set1_ps(sums.values[e]), x));
    }
    _mm256_maskstore_ps(out + column, rest, sum);
}

}  // namespace

SPSAMPLE_AVX2 void sum_rows_avx2(const RowSums<float>& sums, int64_t begin, int64_t end, float* out) {
    for (int64_t r = begin; r < end; ++r) {
        float* const to = out + r * sums.stride;
        int64_t column = 0;
        for (; column + 8 * kLane <= sums.dim; column += 8 * kLane) sum_columns<8>(sums, r, column, to);
        for (; column + 4 * kLane <= sums.dim; column += 4 * kLane) sum_columns<4>(sums, r, column, to);
        for (; column + kLane <= sums.dim; column += kLane) sum_columns<1>(sums, r, column, to);
        if (column < sums.dim) sum_rest(sums, r, column, to);
    }
}

}  // namespace spsample

#endif
