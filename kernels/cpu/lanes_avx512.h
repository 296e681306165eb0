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

// 16 words in the low halves of 64-bit lanes: those of the even lanes, and those of the odd ones. What is in the high halves
// does not count: neither a multiplication nor an exclusive or of the low halves looks at it.
struct Words {
    __m512i even;
    __m512i odd;
};

SPSAMPLE_AVX512_INLINE Words words_of(__m512i lanes) { return {lanes, _mm512_srli_epi64(lanes, 32)}; }

SPSAMPLE_AVX512_INLINE Words same_words(uint32_t word) {
    const __m512i lanes = _mm512_set1_epi32(static_cast<int>(word));
    return {lanes, lanes};
}

// The low words of 64-bit lanes, put together; and the high ones.
SPSAMPLE_AVX512_INLINE __m512i low_words(const Words& words) {
    return _mm512_mask_mov_epi32(words.even, kOddLanes, _mm512_slli_epi64(words.odd, 32));
}
SPSAMPLE_AVX512_INLINE __m512i high_words(const Words& words) {
    return _mm512_mask_mov_epi32(_mm512_srli_epi64(words.even, 32), kOddLanes, words.odd);
}

// Four words of 8 counters.
struct Counters {
    __m512i w[4];
};

SPSAMPLE_AVX512_INLINE __m512i xor3(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

// One round of Philox4x32 on 8 counters in the low halves of 64-bit lanes: the products' low words need not be moved.
SPSAMPLE_AVX512_INLINE Counters philox_round(const Counters& c, __m512i key0, __m512i key1) {
    const __m512i product0 = _mm512_mul_epu32(c.w[0], _mm512_set1_epi64(0xD2511F53));
    const __m512i product1 = _mm512_mul_epu32(c.w[2], _mm512_set1_epi64(0xCD9E8D57));
    return {{xor3(_mm512_srli_epi64(product1, 32), c.w[1], key0), product1,
             xor3(_mm512_srli_epi64(product0, 32), c.w[3], key1), product0}};
}

// Four words of 16 counters.
struct PhiloxLanes {
    Words w[4];
};

// Philox4x32-10 of 16 counters under one key.
SPSAMPLE_AVX512_INLINE PhiloxLanes philox(const PhiloxLanes& counter, const RoundKeys& keys) {
    Counters even{{counter.w[0].even, counter.w[1].even, counter.w[2].even, counter.w[3].even}};
    Counters odd{{counter.w[0].odd, counter.w[1].odd, counter.w[2].odd, counter.w[3].odd}};
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const __m512i key0 = _mm512_set1_epi32(static_cast<int>(keys.round[round].word0));
        const __m512i key1 = _mm512_set1_epi32(static_cast<int>(keys.round[round].word1));
        even = philox_round(even, key0, key1);
        odd = philox_round(odd, key0, key1);
    }
    return {{{even.w[0], odd.w[0]}, {even.w[1], odd.w[1]}, {even.w[2], odd.w[2]}, {even.w[3], odd.w[3]}}};
}

}  // namespace spsample::avx512
