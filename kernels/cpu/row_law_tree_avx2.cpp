// Trees of weights in AVX2 (lanes_avx2.h says how such a file is compiled).
#include <algorithm>
#include <limits>

#include "simd.h"
#include "row_law_ranks.h"
#include "row_law_tree.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

#define SPSAMPLE_LOOP SPSAMPLE_AVX2_INLINE
#define SPSAMPLE_LOOP_LAMBDA SPSAMPLE_AVX2_MEMBER
#define SPSAMPLE_LOOP_MEMBER SPSAMPLE_AVX2_MEMBER inline

namespace kernel {

using avx2::kHalf;
using avx2::load;

constexpr int kVectorBytes = 32;
constexpr bool kOwnLoopOfUsualFanouts = true;

// Bit l: whether lane l is at least y, unsigned.
SPSAMPLE_AVX2_INLINE unsigned lanes_at_least(__m256i lanes, __m256i y) { return avx2::mask_of(avx2::at_least(lanes, y)); }

using Bound = __m256i;

SPSAMPLE_AVX2_INLINE Bound bound(const uint32_t* unit) { return _mm256_set1_epi32(static_cast<int>(*unit)); }

SPSAMPLE_AVX2_INLINE uint32_t count_below(const uint32_t* block, Bound bound) {
    const unsigned not_below = lanes_at_least(load(block), bound) | lanes_at_least(load(block + kHalf), bound) << kHalf;
    return static_cast<uint32_t>(kTreeLanes - __builtin_popcount(not_below));
}

using Mask = bool;

SPSAMPLE_AVX2_INLINE Mask equal(const uint32_t* block, uint32_t below, Bound, uint32_t unit) { return block[below] == unit; }

// The distinct positions of a lane, in its own place.
struct Distinct {
    uint32_t* positions;  // every 16th element
    int count = 0;

    SPSAMPLE_AVX2_MEMBER explicit Distinct(uint32_t* of_lane) : positions(of_lane) {}

    // Adds a position of which it is known whether it repeats one before it.
    SPSAMPLE_AVX2_MEMBER void add_known(uint32_t position, bool repeated) {
        positions[count * kTreeLanes] = position;
        count += repeated ? 0 : 1;
    }

    SPSAMPLE_AVX2_MEMBER void add(uint32_t position) {
        bool found = false;
        for (int j = 0; j < count; ++j) found |= positions[j * kTreeLanes] == position;
        positions[count * kTreeLanes] = position;
        count += found ? 0 : 1;
    }
};

// Bit l of repeated[j]: whether position j of lane l is among those before it, for first <= j < end. Returns them all together.
SPSAMPLE_AVX2_INLINE uint32_t repeats(const LaneWords* positions, int first, int end, uint32_t* repeated) {
    uint32_t all = 0;
    for (int draw = first; draw < end; ++draw) {
        const __m256i here = load(positions[draw]), there = load(positions[draw] + kHalf);
        __m256i first = _mm256_setzero_si256(), second = first;
        for (int before = 0; before < draw; ++before) {
            first = _mm256_or_si256(first, _mm256_cmpeq_epi32(here, load(positions[before])));
            second = _mm256_or_si256(second, _mm256_cmpeq_epi32(there, load(positions[before] + kHalf)));
        }
        repeated[draw] = avx2::mask_of(first) | avx2::mask_of(second) << kHalf;
        all |= repeated[draw];
    }
    return all;
}

SPSAMPLE_AVX2_INLINE void philox(const LaneCounters& c, const TreeDraw& how, int, LaneWords* words) {
    for (int lane = 0; lane < kTreeLanes; lane += kHalf) {
        const avx2::PhiloxLanes drawn = avx2::philox(
            {{avx2::words_of(load(c.words[0] + lane)), avx2::words_of(load(c.words[1] + lane)),
              avx2::words_of(load(c.words[2] + lane)), avx2::words_of(load(c.words[3] + lane))}},
            how.keys);
        for (int i = 0; i < 4; ++i) avx2::store(words[i] + lane, avx2::low_words(drawn.w[i]));
    }
}

}  // namespace kernel

#include "row_law_tree_loops.h"
#include "row_law_ranks_loops.h"

template <class Real>
SPSAMPLE_AVX2 ExponentRange range(const Real* weights, int64_t count) {
    return range_loop(weights, count);
}

template <class Real>
SPSAMPLE_AVX2 uint64_t prefix_sums(
    const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums, const PrefetchRange& ahead) {
    return prefix_sums_loop<PlainSums>(weights, count, shift, level0, sums, ahead);
}

template <bool Wide>
SPSAMPLE_AVX2 void draw(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes) {
    draw_lanes_loop<Wide, PlainUnits>(how, trees, lanes);
}

SPSAMPLE_AVX2 void draw_ranked(const TreeDraw& how, const RankedLanes& rows, TreeLanes& lanes) {
    draw_ranked_loop<PlainUnits>(how, rows, lanes);
}

}  // namespace

const TreeSet kTreesAvx2{
    {range<float>, prefix_sums<float>}, {range<double>, prefix_sums<double>}, draw<false>, draw<true>, draw_ranked};

}  // namespace spsample

#endif
