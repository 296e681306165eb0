// match.h in AVX2, 8 lanes (lanes_avx2.h says how such a file is compiled).
#include "match.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

constexpr int64_t kEight = 8;

SPSAMPLE_AVX2_INLINE __m256i load(const void* memory) { return _mm256_loadu_si256(static_cast<const __m256i*>(memory)); }

using avx2::lanes_in;
using avx2::mask_of;

// words[at] per lane. Eight loads: on AMD's processors they take less time than a gather does.
SPSAMPLE_AVX2_INLINE __m256i words_at(const uint32_t* words, __m256i at) {
    alignas(32) uint32_t lane[kEight];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), at);
    const auto word = [&](int i) { return static_cast<int>(words[lane[i]]); };
    return _mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
}

SPSAMPLE_AVX2 int64_t likely(const KeyFilter& filter, const int32_t* row, int64_t count, uint32_t* offsets) {
    const __m256i golden = _mm256_set1_epi32(static_cast<int>(KeyFilter::kGolden));
    const __m128i shift = _mm_cvtsi32_si128(filter.shift);
    int64_t number = 0, e = 0;
    for (; e + kEight <= count; e += kEight) {
        const __m256i bit = _mm256_srl_epi32(_mm256_mullo_epi32(load(row + e), golden), shift);
        const __m256i gathered = words_at(filter.words, _mm256_srli_epi32(bit, 5));
        // the wanted bit moved up to the sign
        const __m256i up = _mm256_sub_epi32(_mm256_set1_epi32(31), _mm256_and_si256(bit, _mm256_set1_epi32(31)));
        const unsigned passed = mask_of(_mm256_sllv_epi32(gathered, up));
        const __m256i found = _mm256_add_epi32(lanes_in(passed), _mm256_set1_epi32(static_cast<int>(e)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(offsets + number), found);
        number += __builtin_popcount(passed);
    }
    for (; e < count; ++e) {
        offsets[number] = static_cast<uint32_t>(e);
        number += filter.test(static_cast<uint64_t>(row[e]));
    }
    return number;
}

// Per lane the first offset in [first, first + length] whose entry is not below the column.
SPSAMPLE_AVX2_INLINE __m256i lower_bounds(const int32_t* row, int64_t first, int64_t length, __m256i columns) {
    __m256i offset = _mm256_set1_epi32(static_cast<int>(first));
    for (; length > 1; length -= length / 2) {
        const __m256i half = _mm256_set1_epi32(static_cast<int>(length / 2));
        const __m256i further = _mm256_add_epi32(offset, half);
        const __m256i below = _mm256_cmpgt_epi32(columns, _mm256_i32gather_epi32(row, further, 4));
        offset = _mm256_blendv_epi8(offset, further, below);
    }
    if (length == 0) return offset;
    return _mm256_sub_epi32(offset, _mm256_cmpgt_epi32(columns, _mm256_i32gather_epi32(row, offset, 4)));
}

// The columns set.columns[first .. first + count - 1], at most 8, looked for in row[from .. to - 1]; where they would be.
SPSAMPLE_AVX2_INLINE void match_lanes(
    const SortedColumns<int32_t>& set, int64_t first, const int32_t* row, int64_t row_count, int64_t from, int64_t to,
    const Matches<int32_t>& found, int64_t* number) {
    alignas(32) int32_t columns[kEight] = {0};
    alignas(32) uint32_t offsets[kEight];
    const int64_t lanes = set.count - first < kEight ? set.count - first : kEight;
    for (int64_t lane = 0; lane < lanes; ++lane) columns[lane] = set.columns[first + lane];
    _mm256_store_si256(reinterpret_cast<__m256i*>(offsets), lower_bounds(row, from, to - from, load(columns)));
    for (int64_t lane = 0; lane < lanes; ++lane) *number = add_equal(set, first + lane, row, row_count, offsets[lane], found, *number);
}

// Where every 8th column goes first, then the columns between two of these within the entries between them.
SPSAMPLE_AVX2 int64_t search(const SortedColumns<int32_t>& set, const int32_t* row, int64_t count, const Matches<int32_t>& found) {
    int64_t number = 0, from = 0;
    for (int64_t begin = 0; begin < set.count; begin += kEight * kEight) {
        alignas(32) int32_t last[kEight];
        alignas(32) uint32_t fences[kEight];
        for (int64_t group = 0; group < kEight; ++group) {
            const int64_t j = begin + (group + 1) * kEight - 1;
            last[group] = set.columns[j < set.count ? j : set.count - 1];
        }
        _mm256_store_si256(reinterpret_cast<__m256i*>(fences), lower_bounds(row, from, count - from, load(last)));
        for (int64_t group = 0; group < kEight && begin + group * kEight < set.count; ++group) {
            const int64_t to = fences[group];
            match_lanes(set, begin + group * kEight, row, count, from, to, found, &number);
            from = to;
        }
    }
    return number;
}

SPSAMPLE_AVX2 int64_t shared(const SharedView<int32_t>& columns, uint64_t wanted, const int32_t* row, int64_t count, uint32_t* offsets) {
    return shared_of(columns, wanted, row, count, offsets);
}

SPSAMPLE_AVX2 int64_t shared_places(
    const SharedView<int32_t>& columns, uint64_t wanted, const int32_t* row, const uint32_t* offsets, int64_t count, SharedMatch<int32_t>* found) {
    return shared_places_of(columns, wanted, row, offsets, count, found);
}

}  // namespace

const MatchFunctions<int32_t> kMatchAvx2{likely, shared, shared_places, search};

}  // namespace spsample

#endif
