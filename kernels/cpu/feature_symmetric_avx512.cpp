// feature_symmetric.h in AVX-512, eight entries at a time (lanes_avx512.h says how such a file is compiled).
#include "feature_symmetric.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

SPSAMPLE_AVX512_INLINE __m256i words(uint32_t word) { return _mm256_set1_epi32(static_cast<int>(word)); }

// vertex_hash::of each.
SPSAMPLE_AVX512_INLINE __m512i hashed(__m256i v) {
    v = _mm256_mullo_epi32(_mm256_xor_si256(v, words(vertex_hash::kTurned)), words(vertex_hash::kFactor));
    v = _mm256_xor_si256(v, _mm256_srli_epi32(v, 15));
    const __m256i turned = _mm256_xor_si256(v, words(vertex_hash::kTurned));
    return _mm512_mul_epu32(_mm512_cvtepu32_epi64(v), _mm512_cvtepu32_epi64(turned));
}

// The sum of the lanes modulo 2^64: the compiler's own is one of signed numbers, which may not wrap.
SPSAMPLE_AVX512_INLINE uint64_t wrapping_sum(__m512i v) {
    uint64_t lanes[8], sum = 0;
    _mm512_storeu_si512(lanes, v);
    for (const uint64_t lane : lanes) sum += lane;
    return sum;
}

}  // namespace

SPSAMPLE_AVX512 bool add_columns_avx512(
    const CsrView<int32_t>& A, const PackedNumbers& x, int64_t begin, int64_t end, int64_t* y, uint64_t& difference) {
    const __m512i mask = _mm512_set1_epi64(static_cast<int64_t>(x.mask())), width = _mm512_set1_epi64(x.width);
    const __m256i count = words(static_cast<uint32_t>(x.count));
    __m256i largest = _mm256_setzero_si256();
    __m512i other = _mm512_setzero_si512();  // (A g) x
    for (int64_t r = begin; r < end; ++r) {
        __m512i sum = _mm512_setzero_si512(), hashes = _mm512_setzero_si512();
        for (int64_t e = A.indptr[r], stop = A.indptr[r + 1]; e < stop; e += 8) {
            const __mmask8 lanes = static_cast<__mmask8>(stop - e >= 8 ? 0xFF : _bzhi_u32(0xFF, static_cast<unsigned>(stop - e)));
            const __m256i columns = _mm256_maskz_loadu_epi32(lanes, A.indices + e);
            largest = _mm256_max_epu32(largest, columns);
            const __m512i at = _mm512_mul_epu32(_mm512_cvtepu32_epi64(_mm256_min_epu32(columns, count)), width);
            const __m512i read = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), lanes, at, x.bytes, 1);
            sum = _mm512_add_epi64(sum, _mm512_and_si512(read, mask));
            hashes = _mm512_mask_add_epi64(hashes, lanes, hashes, hashed(columns));
        }
        y[r] = static_cast<int64_t>(wrapping_sum(sum));
        other = _mm512_add_epi64(other, _mm512_mullo_epi64(hashes, _mm512_set1_epi64(static_cast<int64_t>(x[r]))));
        difference += vertex_hash::of(static_cast<uint32_t>(r)) * static_cast<uint64_t>(y[r]);
    }
    difference -= wrapping_sum(other);
    return _mm256_cmpge_epu32_mask(largest, count) == 0;
}

}  // namespace spsample

#endif
