// Trees of weights in AVX-512 (lanes_avx512.h says how such a file is compiled).
#include <algorithm>
#include <limits>

#include "simd.h"
#include "weight_tree.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

#define SPSAMPLE_LOOP SPSAMPLE_AVX512_INLINE
#define SPSAMPLE_LOOP_LAMBDA SPSAMPLE_AVX512_MEMBER

namespace kernel {

SPSAMPLE_AVX512_INLINE uint32_t count_below(const uint32_t* block, uint32_t y) {
    const __m512i elements = _mm512_load_si512(block);
    return static_cast<uint32_t>(__builtin_popcount(_mm512_cmplt_epu32_mask(elements, _mm512_set1_epi32(static_cast<int>(y)))));
}

// Compares each of the first 16 draws with those before it in a register; draws beyond count as repeats, to be looked at one by one.
struct Repeats {
    __m512i before;
    __mmask16 equal = 0;
    bool more = false;

    SPSAMPLE_LOOP_LAMBDA Repeats() : before(_mm512_set1_epi32(-1)) {}  // no position is 2^32 - 1

    SPSAMPLE_LOOP_LAMBDA void add(const uint32_t* positions, int draw) {
        const __m512i position = _mm512_set1_epi32(static_cast<int>(positions[draw]));
        equal |= _mm512_cmpeq_epi32_mask(before, position);
        before = _mm512_mask_mov_epi32(before, static_cast<__mmask16>(uint64_t(1) << draw), position);
        more |= draw >= kTreeLanes;
    }
    SPSAMPLE_LOOP_LAMBDA bool any() const { return more || equal != 0; }
};

SPSAMPLE_AVX512_INLINE void philox_block(const TreeDraw& how, const TreeLanes& lanes, int number, uint32_t (*words)[kTreeLanes]) {
    const __m512i c0 = _mm512_load_si512(lanes.vertex_low);
    const __m512i c1 = _mm512_or_si512(_mm512_load_si512(lanes.vertex_high), _mm512_set1_epi32(static_cast<int>(how.hop << 16)));
    const avx512::PhiloxLanes drawn = avx512::philox(
        {{avx512::words_of(c0), avx512::words_of(c1), avx512::same_words(static_cast<uint32_t>(number)),
          avx512::words_of(_mm512_load_si512(lanes.batch_id))}},
        how.keys);
    for (int i = 0; i < 4; ++i) _mm512_store_si512(words[i], avx512::low_words(drawn.w[i]));
}

}  // namespace kernel

#include "tree_loops.h"

template <class Real>
SPSAMPLE_AVX512 ExponentRange range(const Real* weights, int64_t count) {
    return range_loop(weights, count);
}

template <class Real>
SPSAMPLE_AVX512 uint64_t prefix_sums(const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums) {
    return prefix_sums_loop(weights, count, shift, level0, sums);
}

template <bool Wide>
SPSAMPLE_AVX512 void draw(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes) {
    draw_lanes_loop<Wide>(how, trees, lanes);
}

}  // namespace

const TreeSet kTreesAvx512{
    {range<float>, prefix_sums<float>}, {range<double>, prefix_sums<double>}, draw<false>, draw<true>};

}  // namespace spsample

#endif
