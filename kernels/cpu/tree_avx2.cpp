// Trees of weights in AVX2 (lanes_avx2.h says how such a file is compiled).
#include <algorithm>
#include <limits>

#include "simd.h"
#include "weight_tree.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

#define SPSAMPLE_LOOP SPSAMPLE_AVX2_INLINE
#define SPSAMPLE_LOOP_LAMBDA SPSAMPLE_AVX2_MEMBER

namespace kernel {

using avx2::kHalf;
using avx2::load;

// Bit l: whether lane l is at least y, unsigned.
SPSAMPLE_AVX2_INLINE unsigned lanes_at_least(__m256i lanes, __m256i y) { return avx2::mask_of(avx2::at_least(lanes, y)); }

SPSAMPLE_AVX2_INLINE uint32_t count_below(const uint32_t* block, uint32_t y) {
    const __m256i bound = _mm256_set1_epi32(static_cast<int>(y));
    const unsigned not_below = lanes_at_least(load(block), bound) | lanes_at_least(load(block + kHalf), bound) << kHalf;
    return static_cast<uint32_t>(kTreeLanes - __builtin_popcount(not_below));
}

// Compares each of the first 16 draws with those before it in two registers; draws beyond count as repeats, to be looked at one by one.
struct Repeats {
    __m256i first, second, equal;
    bool more = false;

    SPSAMPLE_LOOP_LAMBDA Repeats()
        : first(_mm256_set1_epi32(-1)), second(first), equal(_mm256_setzero_si256()) {}  // no position is 2^32 - 1

    SPSAMPLE_LOOP_LAMBDA void add(const uint32_t* positions, int draw) {
        const __m256i position = _mm256_set1_epi32(static_cast<int>(positions[draw]));
        const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
        equal = _mm256_or_si256(equal, _mm256_or_si256(_mm256_cmpeq_epi32(first, position), _mm256_cmpeq_epi32(second, position)));
        first = _mm256_blendv_epi8(first, position, _mm256_cmpeq_epi32(lane, _mm256_set1_epi32(draw)));
        second = _mm256_blendv_epi8(second, position, _mm256_cmpeq_epi32(lane, _mm256_set1_epi32(draw - kHalf)));
        more |= draw >= 2 * kHalf;
    }
    SPSAMPLE_LOOP_LAMBDA bool any() const {
        return more || _mm256_movemask_epi8(equal) != 0;
    }
};

SPSAMPLE_AVX2_INLINE void philox_block(const TreeDraw& how, const TreeLanes& lanes, int number, uint32_t (*words)[kTreeLanes]) {
    for (int lane = 0; lane < kTreeLanes; lane += kHalf) {
        const __m256i c1 = _mm256_or_si256(load(lanes.vertex_high + lane), _mm256_set1_epi32(static_cast<int>(how.hop << 16)));
        const avx2::PhiloxLanes drawn = avx2::philox(
            {{avx2::words_of(load(lanes.vertex_low + lane)), avx2::words_of(c1), avx2::same_words(static_cast<uint32_t>(number)),
              avx2::words_of(load(lanes.batch_id + lane))}},
            how.keys);
        for (int i = 0; i < 4; ++i) avx2::store(words[i] + lane, avx2::low_words(drawn.w[i]));
    }
}

}  // namespace kernel

#include "tree_loops.h"

template <class Real>
SPSAMPLE_AVX2 ExponentRange range(const Real* weights, int64_t count) {
    return range_loop(weights, count);
}

template <class Real>
SPSAMPLE_AVX2 uint64_t prefix_sums(const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums) {
    return prefix_sums_loop(weights, count, shift, level0, sums);
}

template <bool Wide>
SPSAMPLE_AVX2 void draw(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes) {
    draw_lanes_loop<Wide>(how, trees, lanes);
}

}  // namespace

const TreeSet kTreesAvx2{
    {range<float>, prefix_sums<float>}, {range<double>, prefix_sums<double>}, draw<false>, draw<true>};

}  // namespace spsample

#endif
