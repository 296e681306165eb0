// What the AVX2 files of this folder share, as lanes_avx512.h: Philox in 8 lanes, members of sets of lanes, and the marks of functions.
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

// For every set of 8 lanes its members, ascending, a byte each from the lowest on.
struct LaneLists {
    uint64_t bytes[256];
    constexpr LaneLists() : bytes() {
        for (unsigned set = 0; set < 256; ++set) {
            int place = 0;
            for (uint64_t lane = 0; lane < 8; ++lane) {
                if ((set >> lane) & 1) bytes[set] |= lane << 8 * place++;
            }
        }
    }
};
inline constexpr LaneLists kLaneLists;

// The members of a set, ascending, in the first lanes; the others are 0.
SPSAMPLE_AVX2_INLINE __m256i lanes_in(unsigned set) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kLaneLists.bytes[set])));
}

// All ones where a >= b, unsigned.
SPSAMPLE_AVX2_INLINE __m256i at_least(__m256i a, __m256i b) { return _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a); }

using Register = __m256i;  // of 8 lanes

SPSAMPLE_AVX2_INLINE Register same_lanes(uint32_t word) { return _mm256_set1_epi32(static_cast<int>(word)); }
SPSAMPLE_AVX2_INLINE Register high_halves(Register x) { return _mm256_srli_epi64(x, 32); }
SPSAMPLE_AVX2_INLINE Register multiply(Register a, Register b) { return _mm256_mul_epu32(a, b); }
SPSAMPLE_AVX2_INLINE Register exclusive_or(Register a, Register b) { return _mm256_xor_si256(a, b); }
SPSAMPLE_AVX2_INLINE Register xor3(Register a, Register b, Register c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }

#define SPSAMPLE_LANES SPSAMPLE_AVX2_INLINE
#define SPSAMPLE_LANES_MEMBER SPSAMPLE_AVX2_MEMBER
#include "philox_lanes.h"
#undef SPSAMPLE_LANES_MEMBER
#undef SPSAMPLE_LANES

// The low words of 64-bit lanes, put together; and the high ones.
SPSAMPLE_AVX2_INLINE __m256i low_words(const Words& words) {
    return _mm256_blend_epi32(words.even, _mm256_slli_epi64(words.odd, 32), kOddLanes);
}
SPSAMPLE_AVX2_INLINE __m256i high_words(const Words& words) {
    return _mm256_blend_epi32(high_halves(words.even), words.odd, kOddLanes);
}

}  // namespace spsample::avx2
