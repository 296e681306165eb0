// new_vertices.h in AVX-512, 512 vertices at a time. As in simd_avx512.cpp, only marked functions may use its instructions.
#include "new_vertices_loops.h"

#if SPSAMPLE_X86

#include <immintrin.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of _mm512_undefined_epi32 in its own headers
#endif

#define SPSAMPLE_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,avx2,bmi,bmi2,lzcnt,popcnt"
#define SPSAMPLE_AVX512 __attribute__((target(SPSAMPLE_TARGET)))
#define SPSAMPLE_AVX512_INLINE __attribute__((target(SPSAMPLE_TARGET), always_inline)) static inline

namespace spsample {
namespace {

// The bytes 0, 1, ..., 63.
SPSAMPLE_AVX512_INLINE __m512i counting_bytes() {
    return _mm512_set_epi64(0x3F3E3D3C3B3A3938, 0x3736353433323130, 0x2F2E2D2C2B2A2928, 0x2726252423222120, 0x1F1E1D1C1B1A1918,
                            0x1716151413121110, 0x0F0E0D0C0B0A0908, 0x0706050403020100);
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

// Sums of the lanes up to and with each.
SPSAMPLE_AVX512_INLINE __m512i running_sums(__m512i lanes) {
    const __m512i zero = _mm512_setzero_si512();
    lanes = _mm512_add_epi32(lanes, _mm512_alignr_epi32(lanes, zero, 15));
    lanes = _mm512_add_epi32(lanes, _mm512_alignr_epi32(lanes, zero, 14));
    lanes = _mm512_add_epi32(lanes, _mm512_alignr_epi32(lanes, zero, 12));
    return _mm512_add_epi32(lanes, _mm512_alignr_epi32(lanes, zero, 8));
}

// Writes the places of 16 words of 32 bits; returns the next place.
SPSAMPLE_AVX512_INLINE uint32_t write_places16(__m512i bits, RankedWord* places, uint32_t first) {
    const __m512i counts = _mm512_popcnt_epi32(bits);
    const __m512i sums = running_sums(counts);
    const __m512i ranks = _mm512_add_epi32(_mm512_sub_epi32(sums, counts), _mm512_set1_epi32(static_cast<int>(first)));
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_storeu_si512(places, _mm512_permutex2var_epi32(bits, low, ranks));
    _mm512_storeu_si512(places + 8, _mm512_permutex2var_epi32(bits, high, ranks));
    return first + static_cast<uint32_t>(_mm_extract_epi32(_mm512_extracti32x4_epi32(sums, 3), 3));
}

template <class Index>
SPSAMPLE_AVX512 int64_t take(const NewSet& set, Index* out, uint32_t first) {
    const Index* const begin = out;
    for (int64_t eight = 0; eight < set.num_words; eight += 8) {  // num_words is a multiple of 8
        const __m512i bits = _mm512_loadu_si512(set.bits + eight);
        unsigned rest = _mm512_test_epi64_mask(bits, bits);
        if (rest == 0) continue;
        first = write_places16(bits, set.places + 2 * eight, first);
        for (; rest != 0; rest &= rest - 1) {
            const int64_t w = eight + __builtin_ctz(rest);
            out = write_vertices(set.bits[w], w, out);
        }
        _mm512_storeu_si512(set.bits + eight, _mm512_setzero_si512());
    }
    return out - begin;
}

template <class Index>
SPSAMPLE_AVX512 void relabel(
    const RankedWord* places, const HashMap<Index, Index>& targets, const Index* vertices, int64_t count, Index* local) {
    relabel_new_loop(places, targets, vertices, count, local);
}

}  // namespace

const NewSetFunctions<int32_t> kNewSetAvx512x32{take<int32_t>, relabel<int32_t>};
const NewSetFunctions<int64_t> kNewSetAvx512x64{take<int64_t>, relabel<int64_t>};

}  // namespace spsample

#endif
