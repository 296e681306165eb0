// cached_rows.h in AVX-512, eight ids at a time (lanes_avx512.h says how such a file is compiled).
#include "cached_rows.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

constexpr int64_t kLanes = 8;

SPSAMPLE_AVX512_INLINE __m512i load(const int64_t* ids, __mmask8 lanes) { return _mm512_maskz_loadu_epi64(lanes, ids); }
SPSAMPLE_AVX512_INLINE __m512i load(const int32_t* ids, __mmask8 lanes) { return _mm512_cvtepi32_epi64(_mm256_maskz_loadu_epi32(lanes, ids)); }

// How many bits of each lane are 1: those of each half of a byte by a table, and the sum of the bytes.
SPSAMPLE_AVX512_INLINE __m512i ones_of(__m512i x) {
    const __m512i low = _mm512_set1_epi8(15), table = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m512i first = _mm512_shuffle_epi8(table, _mm512_and_si512(x, low));
    const __m512i second = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi64(x, 4), low));
    return _mm512_sad_epu8(_mm512_add_epi8(first, second), _mm512_setzero_si512());
}

template <class Index>
SPSAMPLE_AVX512 int64_t find(const CachedRows& rows, const Index* ids, int64_t count, intptr_t* addresses) {
    const __m512i one = _mm512_set1_epi64(1), last_bit = _mm512_set1_epi64(31), row_bytes = _mm512_set1_epi64(rows.row_bytes);
    const __m512i near = _mm512_set1_epi64(rows.kept), far = _mm512_set1_epi64(rows.all);
    int64_t hits = 0;
    for (int64_t i = 0; i < count; i += kLanes) {
        if (i + kPlacesAhead + kLanes <= count) {
            for (int64_t j = i + kPlacesAhead; j < i + kPlacesAhead + kLanes; ++j) SPSAMPLE_PREFETCH(rows.words + static_cast<uint64_t>(ids[j]) / 32);
        }
        const int64_t left = count - i;
        const auto lanes = static_cast<__mmask8>(_bzhi_u32(0xFF, static_cast<unsigned>(left < kLanes ? left : kLanes)));
        const __m512i vertex = load(ids + i, lanes);
        const __m512i word = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), lanes, _mm512_srli_epi64(vertex, 5), rows.words, 8);
        const __m512i bit = _mm512_sllv_epi64(one, _mm512_and_si512(vertex, last_bit));
        const __mmask8 is_kept = _mm512_test_epi64_mask(word, bit);
        const __m512i below = ones_of(_mm512_and_si512(word, _mm512_sub_epi64(bit, one)));
        const __m512i row = _mm512_mask_add_epi64(vertex, is_kept, _mm512_srli_epi64(word, 32), below);
        const __m512i first = _mm512_mask_mov_epi64(far, is_kept, near);
        _mm512_mask_storeu_epi64(addresses + i, lanes, _mm512_add_epi64(first, _mm512_mullo_epi64(row, row_bytes)));
        hits += _mm_popcnt_u32(is_kept);
    }
    return hits;
}

}  // namespace

const CachedRowFinders kCachedRowsAvx512{find<int32_t>, find<int64_t>};

}  // namespace spsample

#endif
