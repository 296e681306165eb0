// Philox in 8 lanes of AVX2, for files that are compiled for any x86-64: only functions marked SPSAMPLE_AVX2 use it.
#pragma once

#include <immintrin.h>

#include "spsample/philox.h"

#define SPSAMPLE_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#define SPSAMPLE_AVX2_INLINE __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt"), always_inline)) static inline

namespace spsample::avx2 {

// 64-bit products of 8 pairs of 32-bit words, as their high and low words.
struct Products {
    __m256i high;
    __m256i low;
};

SPSAMPLE_AVX2_INLINE Products multiply(__m256i a, __m256i b) {
    constexpr int odd_lanes = 0xAA;
    const __m256i even = _mm256_mul_epu32(a, b);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
    return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, odd_lanes),
            _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), odd_lanes)};
}

struct Words {
    __m256i w[4];
};

SPSAMPLE_AVX2_INLINE __m256i xor3(__m256i a, __m256i b, __m256i c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }

// Philox4x32-10 of 8 counters under one key.
SPSAMPLE_AVX2_INLINE Words philox(Words c, PhiloxKey key) {
    const __m256i multiplier0 = _mm256_set1_epi64x(0xD2511F53), multiplier1 = _mm256_set1_epi64x(0xCD9E8D57);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        const Products p0 = multiply(c.w[0], multiplier0);
        const Products p1 = multiply(c.w[2], multiplier1);
        const __m256i key0 = _mm256_set1_epi32(static_cast<int>(key.word0));
        const __m256i key1 = _mm256_set1_epi32(static_cast<int>(key.word1));
        c = {{xor3(p1.high, c.w[1], key0), p1.low, xor3(p0.high, c.w[3], key1), p0.low}};
        key.word0 += 0x9E3779B9u;
        key.word1 += 0xBB67AE85u;
    }
    return c;
}

}  // namespace spsample::avx2
