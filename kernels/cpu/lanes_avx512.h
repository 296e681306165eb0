// What the AVX-512 files of this folder share: Philox in 16 lanes, and the marks of functions that use its instructions. These files
// are compiled for any x86-64, so that no inline function of a header is compiled for more: only marked functions may use them.
#pragma once

#include <immintrin.h>

#include "spsample/philox.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of _mm512_undefined_epi32 in its own headers
#endif

#define SPSAMPLE_AVX512_TARGET target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi,bmi2,lzcnt,popcnt")
#define SPSAMPLE_AVX512 __attribute__((SPSAMPLE_AVX512_TARGET))
#define SPSAMPLE_AVX512_INLINE __attribute__((SPSAMPLE_AVX512_TARGET, always_inline)) static inline
#define SPSAMPLE_AVX512_MEMBER __attribute__((SPSAMPLE_AVX512_TARGET, always_inline))  // of members and lambdas

namespace spsample::avx512 {

constexpr __mmask16 kOddLanes = 0xAAAA;
constexpr __mmask16 kEvenLanes = 0x5555;

using Register = __m512i;  // of 16 lanes

SPSAMPLE_AVX512_INLINE Register same_lanes(uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }
SPSAMPLE_AVX512_INLINE Register high_halves(Register x) { return _mm512_srli_epi64(x, 32); }
SPSAMPLE_AVX512_INLINE Register multiply(Register a, Register b) { return _mm512_mul_epu32(a, b); }
SPSAMPLE_AVX512_INLINE Register exclusive_or(Register a, Register b) { return _mm512_xor_si512(a, b); }
SPSAMPLE_AVX512_INLINE Register xor3(Register a, Register b, Register c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

#define SPSAMPLE_LANES SPSAMPLE_AVX512_INLINE
#define SPSAMPLE_LANES_MEMBER SPSAMPLE_AVX512_MEMBER
#include "philox_lanes.h"
#undef SPSAMPLE_LANES_MEMBER
#undef SPSAMPLE_LANES

// The low words of 64-bit lanes, put together; and the high ones.
SPSAMPLE_AVX512_INLINE __m512i low_words(const Words& words) {
    return _mm512_mask_mov_epi32(words.even, kOddLanes, _mm512_slli_epi64(words.odd, 32));
}
SPSAMPLE_AVX512_INLINE __m512i high_words(const Words& words) {
    return _mm512_mask_mov_epi32(high_halves(words.even), kOddLanes, words.odd);
}

// Sums of the 32-bit lanes up to and with each.
SPSAMPLE_AVX512_INLINE __m512i prefix_sums(__m512i x) {
    const __m512i zero = _mm512_setzero_si512();
    x = _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 15));
    x = _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 14));
    x = _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 12));
    return _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 8));
}

}  // namespace spsample::avx512
