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

struct Words {
    __m512i w[4];
};

SPSAMPLE_AVX512_INLINE __m512i xor3(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

// One round of Philox4x32 on 8 counters in the low halves of 64-bit lanes. What is in the high halves does not count: neither a
// multiplication nor an exclusive or of the low halves looks at it, and so the products' low words need not be moved.
SPSAMPLE_AVX512_INLINE Words philox_round(const Words& c, PhiloxKey key) {
    const __m512i product0 = _mm512_mul_epu32(c.w[0], _mm512_set1_epi64(0xD2511F53));
    const __m512i product1 = _mm512_mul_epu32(c.w[2], _mm512_set1_epi64(0xCD9E8D57));
    const __m512i key0 = _mm512_set1_epi32(static_cast<int>(key.word0)), key1 = _mm512_set1_epi32(static_cast<int>(key.word1));
    return {{xor3(_mm512_srli_epi64(product1, 32), c.w[1], key0), product1,
             xor3(_mm512_srli_epi64(product0, 32), c.w[3], key1), product0}};
}

// Philox4x32-10 of 16 counters under one key: the even lanes and the odd ones side by side.
SPSAMPLE_AVX512_INLINE Words philox(const Words& counter, PhiloxKey key) {
    Words even = counter, odd;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) odd.w[i] = _mm512_srli_epi64(counter.w[i], 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        even = philox_round(even, key);
        odd = philox_round(odd, key);
        key.word0 += 0x9E3779B9u;
        key.word1 += 0xBB67AE85u;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) even.w[i] = _mm512_mask_mov_epi32(even.w[i], 0xAAAA, _mm512_slli_epi64(odd.w[i], 32));
    return even;
}

}  // namespace spsample::avx512
