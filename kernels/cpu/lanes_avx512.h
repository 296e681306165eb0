// Philox in 16 lanes of AVX-512, for files that are compiled for any x86-64: only functions marked SPSAMPLE_AVX512 use it.
#pragma once

#include <immintrin.h>

#include "spsample/philox.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of _mm512_undefined_epi32 in its own headers
#endif

#define SPSAMPLE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,lzcnt,popcnt")))
#define SPSAMPLE_AVX512_INLINE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,lzcnt,popcnt"), always_inline)) static inline

namespace spsample::avx512 {

// 64-bit products of 16 pairs of 32-bit words, as their high and low words.
struct Products {
    __m512i high;
    __m512i low;
};

SPSAMPLE_AVX512_INLINE Products multiply(__m512i a, __m512i b) {
    constexpr __mmask16 odd_lanes = 0xAAAA;
    const __m512i even = _mm512_mul_epu32(a, b);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
    return {_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), odd_lanes, odd),
            _mm512_mask_mov_epi32(even, odd_lanes, _mm512_slli_epi64(odd, 32))};
}

struct Words {
    __m512i w[4];
};

SPSAMPLE_AVX512_INLINE __m512i xor3(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

// Philox4x32-10 of 16 counters under one key.
SPSAMPLE_AVX512_INLINE Words philox(Words c, PhiloxKey key) {
    const __m512i multiplier0 = _mm512_set1_epi64(0xD2511F53), multiplier1 = _mm512_set1_epi64(0xCD9E8D57);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        const Products p0 = multiply(c.w[0], multiplier0);
        const Products p1 = multiply(c.w[2], multiplier1);
        const __m512i key0 = _mm512_set1_epi32(static_cast<int>(key.word0));
        const __m512i key1 = _mm512_set1_epi32(static_cast<int>(key.word1));
        c = {{xor3(p1.high, c.w[1], key0), p1.low, xor3(p0.high, c.w[3], key1), p0.low}};
        key.word0 += 0x9E3779B9u;
        key.word1 += 0xBB67AE85u;
    }
    return c;
}

}  // namespace spsample::avx512
