// The vertices of a word of a bit set, for the AVX-512 files (lanes_avx512.h says how such a file is compiled).
#pragma once

#include "lanes_avx512.h"
#include "simd.h"
#include "simd_ranks.h"

namespace spsample::avx512 {

// The bytes 0, 1, ..., 63.
SPSAMPLE_AVX512_INLINE __m512i counting_bytes() {
    return _mm512_set_epi64(0x3F3E3D3C3B3A3938, 0x3736353433323130, 0x2F2E2D2C2B2A2928, 0x2726252423222120, 0x1F1E1D1C1B1A1918,
                            0x1716151413121110, 0x0F0E0D0C0B0A0908, 0x0706050403020100);
}

// Bit w: whether word w of 64 is not empty in one of two sets.
SPSAMPLE_AVX512_INLINE uint64_t nonempty_words(const uint64_t* one, const uint64_t* other) {
    uint64_t nonempty = 0;
#pragma GCC unroll 8
    for (int w = 0; w < 64; w += 8) {
        const __m512i eight = _mm512_or_si512(_mm512_loadu_si512(one + w), _mm512_loadu_si512(other + w));
        nonempty |= static_cast<uint64_t>(_mm512_test_epi64_mask(eight, eight)) << w;
    }
    return nonempty;
}

// The vertices 64 w + i of the bits i of word w, ascending. Returns where the next go; writes up to kLanes vertices further.
SPSAMPLE_AVX512_INLINE int32_t* write_vertices(uint64_t bits, int64_t w, int32_t* out) {
    const __m512i first = _mm512_set1_epi32(static_cast<int>(64 * w));
    const int count = __builtin_popcountll(bits);
    __m512i left = _mm512_maskz_compress_epi8(bits, counting_bytes());
    _mm512_storeu_si512(out, _mm512_add_epi32(first, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(left))));
    for (int done = kLanes; done < count; done += kLanes) {
        left = _mm512_alignr_epi64(left, left, 2);  // 16 bytes down
        _mm512_storeu_si512(out + done, _mm512_add_epi32(first, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(left))));
    }
    return out + count;
}

SPSAMPLE_AVX512_INLINE int64_t* write_vertices(uint64_t bits, int64_t w, int64_t* out) {
    for (; bits != 0; bits &= bits - 1) *out++ = 64 * w + lowest_bit(bits);
    return out;
}

}  // namespace spsample::avx512
