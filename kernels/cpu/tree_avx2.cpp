// Trees of weights in AVX2 (simd_avx2.cpp says how such a file is compiled).
#include <algorithm>
#include <limits>

#include "simd.h"
#include "weight_tree.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

#define SPSAMPLE_LOOP SPSAMPLE_AVX2_INLINE
#define SPSAMPLE_LOOP_MEMBER SPSAMPLE_LOOP_LAMBDA inline
#define SPSAMPLE_LOOP_LAMBDA __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt"), always_inline))

namespace kernel {

constexpr int kHalf = 8;
constexpr int kVectorBytes = 32;

SPSAMPLE_AVX2_INLINE __m256i load(const uint32_t* lanes) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(lanes)); }

// Bit l: whether lane l is at least y, unsigned.
SPSAMPLE_AVX2_INLINE unsigned at_least(__m256i lanes, __m256i y) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(lanes, y), lanes))));
}

SPSAMPLE_AVX2_INLINE uint32_t count_below(const uint32_t* block, uint32_t y) {
    const __m256i bound = _mm256_set1_epi32(static_cast<int>(y));
    const unsigned not_below = at_least(load(block), bound) | at_least(load(block + kHalf), bound) << kHalf;
    return static_cast<uint32_t>(kTreeLanes - __builtin_popcount(not_below));
}

// Whether `position` is among the first `count` positions.
SPSAMPLE_AVX2_INLINE bool is_among(const uint32_t* positions, int count, uint32_t position) {
    bool found = false;
    for (int j = 0; j < count; ++j) found |= positions[j] == position;
    return found;
}

// Keeps the first of equal positions; returns how many there are.
SPSAMPLE_AVX2_INLINE int keep_first(uint32_t* positions, int size) {
    int count = 1;
    for (int draw = 1; draw < size; ++draw) {
        const uint32_t position = positions[draw];
        positions[count] = position;
        count += is_among(positions, count, position) ? 0 : 1;
    }
    return count;
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
    SPSAMPLE_LOOP_LAMBDA int keep_first(uint32_t* positions, int size) const { return kernel::keep_first(positions, size); }
};

SPSAMPLE_AVX2_INLINE void philox_block(const TreeDraw& how, const TreeLanes& lanes, int number, uint32_t (*words)[kTreeLanes]) {
    for (int lane = 0; lane < kTreeLanes; lane += kHalf) {
        const __m256i c1 = _mm256_or_si256(load(lanes.vertex_high + lane), _mm256_set1_epi32(static_cast<int>(how.hop << 16)));
        const avx2::Words drawn = avx2::philox(
            {{load(lanes.vertex_low + lane), c1, _mm256_set1_epi32(number), load(lanes.batch_id + lane)}}, how.key);
        for (int i = 0; i < 4; ++i) _mm256_store_si256(reinterpret_cast<__m256i*>(words[i] + lane), drawn.w[i]);
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
    return prefix_sums_loop<PlainSums>(weights, count, shift, level0, sums);
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
