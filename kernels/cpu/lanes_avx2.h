// What the AVX2 files of this folder share, as lanes_avx512.h: Philox in 8 lanes, and the marks of functions.
#pragma once

#include <immintrin.h>

#include "spsample/philox.h"

#define SPSAMPLE_AVX2_TARGET target("avx2,bmi,bmi2,lzcnt,popcnt")
#define SPSAMPLE_AVX2 __attribute__((SPSAMPLE_AVX2_TARGET))
#define SPSAMPLE_AVX2_INLINE __attribute__((SPSAMPLE_AVX2_TARGET, always_inline)) static inline
#define SPSAMPLE_AVX2_MEMBER __attribute__((SPSAMPLE_AVX2_TARGET, always_inline))  // of members and lambdas

namespace spsample::avx2 {

constexpr int kHalf = 8;  // lanes of a register, half of those that are drawn at a time
constexpr int kOddLanes = 0xAA;

SPSAMPLE_AVX2_INLINE __m256i load(const uint32_t* lanes) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(lanes)); }
SPSAMPLE_AVX2_INLINE void store(uint32_t* lanes, __m256i x) { _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), x); }

// Bit l: whether lane l is all ones.
SPSAMPLE_AVX2_INLINE unsigned mask_of(__m256i lanes) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
}

// All ones where a >= b, unsigned.
SPSAMPLE_AVX2_INLINE __m256i at_least(__m256i a, __m256i b) { return _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a); }

// 8 words in the low halves of 64-bit lanes, as in lanes_avx512.h.
struct Words {
    __m256i even;
    __m256i odd;
};

SPSAMPLE_AVX2_INLINE Words words_of(__m256i lanes) { return {lanes, _mm256_srli_epi64(lanes, 32)}; }

SPSAMPLE_AVX2_INLINE Words same_words(uint32_t word) {
    const __m256i lanes = _mm256_set1_epi32(static_cast<int>(word));
    return {lanes, lanes};
}

// The low words of 64-bit lanes, put together; and the high ones.
SPSAMPLE_AVX2_INLINE __m256i low_words(const Words& words) {
    return _mm256_blend_epi32(words.even, _mm256_slli_epi64(words.odd, 32), kOddLanes);
}
SPSAMPLE_AVX2_INLINE __m256i high_words(const Words& words) {
    return _mm256_blend_epi32(_mm256_srli_epi64(words.even, 32), words.odd, kOddLanes);
}

// Four words of 4 counters.
struct Counters {
    __m256i w[4];
};

SPSAMPLE_AVX2_INLINE __m256i xor3(__m256i a, __m256i b, __m256i c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }

// One round of Philox4x32 on 4 counters in the low halves of 64-bit lanes.
SPSAMPLE_AVX2_INLINE Counters philox_round(const Counters& c, __m256i key0, __m256i key1) {
    const __m256i product0 = _mm256_mul_epu32(c.w[0], _mm256_set1_epi64x(0xD2511F53));
    const __m256i product1 = _mm256_mul_epu32(c.w[2], _mm256_set1_epi64x(0xCD9E8D57));
    return {{xor3(_mm256_srli_epi64(product1, 32), c.w[1], key0), product1,
             xor3(_mm256_srli_epi64(product0, 32), c.w[3], key1), product0}};
}

// Four words of 8 counters.
struct PhiloxLanes {
    Words w[4];
};

// Philox4x32-10 of 8 counters under one key.
SPSAMPLE_AVX2_INLINE PhiloxLanes philox(const PhiloxLanes& counter, const RoundKeys& keys) {
    Counters even{{counter.w[0].even, counter.w[1].even, counter.w[2].even, counter.w[3].even}};
    Counters odd{{counter.w[0].odd, counter.w[1].odd, counter.w[2].odd, counter.w[3].odd}};
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const __m256i key0 = _mm256_set1_epi32(static_cast<int>(keys.round[round].word0));
        const __m256i key1 = _mm256_set1_epi32(static_cast<int>(keys.round[round].word1));
        even = philox_round(even, key0, key1);
        odd = philox_round(odd, key0, key1);
    }
    return {{{even.w[0], odd.w[0]}, {even.w[1], odd.w[1]}, {even.w[2], odd.w[2]}, {even.w[3], odd.w[3]}}};
}

}  // namespace spsample::avx2
