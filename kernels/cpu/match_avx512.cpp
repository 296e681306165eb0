// match.h in AVX-512, 16 lanes (lanes_avx512.h says how such a file is compiled).
#include "match.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

SPSAMPLE_AVX512_INLINE __m512i counting_from(int64_t first) {
    return _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                            _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

// Lanes 0 .. count - 1.
SPSAMPLE_AVX512_INLINE __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>(count < kLanes ? (1u << count) - 1 : 0xFFFF); }

// Whether the bits of 8 entries are set. Two gathers of 8 lanes take less time than one of 16 (Zen 4: 0.42 ns an entry, not 0.59).
SPSAMPLE_AVX512_INLINE unsigned passing(const KeyFilter& filter, __m256i entries, __m128i shift) {
    const __m256i golden = _mm256_set1_epi32(static_cast<int>(KeyFilter::kGolden));
    const __m256i bit = _mm256_srl_epi32(_mm256_mullo_epi32(entries, golden), shift);
    const __m256i words = _mm256_i32gather_epi32(reinterpret_cast<const int*>(filter.words), _mm256_srli_epi32(bit, 5), 4);
    return _mm256_test_epi32_mask(_mm256_rorv_epi32(words, bit), _mm256_set1_epi32(1));
}

SPSAMPLE_AVX512 int64_t likely(const KeyFilter& filter, const int32_t* row, int64_t count, uint32_t* offsets) {
    const __m128i shift = _mm_cvtsi32_si128(filter.shift);
    int64_t number = 0;
    for (int64_t e = 0; e < count; e += kLanes) {
        const __mmask16 lanes = first_lanes(count - e);
        const __m512i entries = _mm512_maskz_loadu_epi32(lanes, row + e);
        const unsigned low = passing(filter, _mm512_castsi512_si256(entries), shift);
        const unsigned high = passing(filter, _mm512_extracti64x4_epi64(entries, 1), shift);
        const __mmask16 passed = lanes & static_cast<__mmask16>(low | high << 8);
        _mm512_storeu_si512(offsets + number, _mm512_maskz_compress_epi32(passed, counting_from(e)));
        number += __builtin_popcount(passed);
    }
    return number;
}

// Per lane the first offset in [first, first + length] whose entry is not below the column.
SPSAMPLE_AVX512_INLINE __m512i lower_bounds(const int32_t* row, int64_t first, int64_t length, __m512i columns) {
    __m512i offset = _mm512_set1_epi32(static_cast<int>(first));
    for (; length > 1; length -= length / 2) {
        const __m512i half = _mm512_set1_epi32(static_cast<int>(length / 2));
        const __m512i probed = _mm512_i32gather_epi32(_mm512_add_epi32(offset, half), row, 4);
        offset = _mm512_mask_add_epi32(offset, _mm512_cmplt_epi32_mask(probed, columns), offset, half);
    }
    if (length == 0) return offset;
    const __m512i last = _mm512_i32gather_epi32(offset, row, 4);
    return _mm512_mask_add_epi32(offset, _mm512_cmplt_epi32_mask(last, columns), offset, _mm512_set1_epi32(1));
}

// The columns set.columns[j], j = first .. first + 15 (those below set.count), looked for in row[from .. from + length - 1].
// `number` grows by the matches.
SPSAMPLE_AVX512_INLINE void match_lanes(
    const SortedColumns<int32_t>& set, int64_t first, const int32_t* row, int64_t count, int64_t from, int64_t length,
    const Matches<int32_t>& found, int64_t* number) {
    const __mmask16 lanes = first_lanes(set.count - first);
    const __m512i columns = _mm512_maskz_loadu_epi32(lanes, set.columns + first);
    const __m512i offsets = lower_bounds(row, from, length, columns);
    const __m512i end = _mm512_set1_epi32(static_cast<int>(count));
    const __mmask16 inside = _mm512_mask_cmplt_epu32_mask(lanes, offsets, end);
    const __m512i none = _mm512_set1_epi32(-1);
    const __mmask16 equal = _mm512_mask_cmpeq_epi32_mask(inside, _mm512_mask_i32gather_epi32(none, inside, offsets, row, 4), columns);
    const __m512i next = _mm512_add_epi32(offsets, _mm512_set1_epi32(1));
    const __mmask16 more = _mm512_mask_cmplt_epu32_mask(equal, next, end);
    const __mmask16 twice = _mm512_mask_cmpeq_epi32_mask(more, _mm512_mask_i32gather_epi32(none, more, next, row, 4), columns);
    if (twice == 0) {
        _mm512_storeu_si512(found.offsets + *number, _mm512_maskz_compress_epi32(equal, offsets));
        const __m512i places = _mm512_maskz_loadu_epi32(lanes, set.places + first);
        _mm512_storeu_si512(found.places + *number, _mm512_maskz_compress_epi32(equal, places));
        *number += __builtin_popcount(equal);
        return;
    }
    alignas(64) uint32_t offset[kLanes];
    _mm512_store_si512(offset, offsets);
    for (unsigned rest = equal; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        *number = add_equal(set, first + lane, row, count, offset[lane], found, *number);
    }
}

// Where every 16th column goes first, then the columns between two of these within the entries between them.
SPSAMPLE_AVX512 int64_t search(const SortedColumns<int32_t>& set, const int32_t* row, int64_t count, const Matches<int32_t>& found) {
    constexpr int64_t kFence = kLanes * kLanes;
    const __m512i stride = _mm512_mullo_epi32(counting_from(1), _mm512_set1_epi32(kLanes));
    int64_t number = 0, from = 0;
    for (int64_t begin = 0; begin < set.count; begin += kFence) {
        alignas(64) uint32_t fences[kLanes];
        const __m512i last = _mm512_set1_epi32(static_cast<int>(set.count - 1 - begin));
        const __m512i numbers = _mm512_min_epi32(_mm512_sub_epi32(stride, _mm512_set1_epi32(1)), last);
        _mm512_store_si512(fences, lower_bounds(row, from, count - from, _mm512_i32gather_epi32(numbers, set.columns + begin, 4)));
        for (int64_t group = 0; group < kLanes && begin + group * kLanes < set.count; ++group) {
            const int64_t to = fences[group];
            match_lanes(set, begin + group * kLanes, row, count, from, to - from, found, &number);
            from = to;
        }
    }
    return number;
}

SPSAMPLE_AVX512 int64_t shared(const SharedView<int32_t>& columns, uint64_t wanted, const int32_t* row, int64_t count, uint32_t* offsets) {
    return shared_of(columns, wanted, row, count, offsets);
}

SPSAMPLE_AVX512 int64_t shared_places(
    const SharedView<int32_t>& columns, uint64_t wanted, const int32_t* row, const uint32_t* offsets, int64_t count, SharedMatch<int32_t>* found) {
    return shared_places_of(columns, wanted, row, offsets, count, found);
}

}  // namespace

const MatchFunctions<int32_t> kMatchAvx512{likely, shared, shared_places, search};

}  // namespace spsample

#endif
