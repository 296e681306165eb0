// simd.h in AVX2: 16 lanes as twice 8 (lanes_avx2.h says how such a file is compiled).
#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"
#include "simd_ranks.h"
#include "words_avx2.h"

namespace spsample {
namespace {

using namespace avx2;

// The words of all draws of 8 lanes, even lanes and odd ones.
struct WordsOf {
    alignas(32) uint32_t even[kMostVectorDraws][kHalf];
    alignas(32) uint32_t odd[kMostVectorDraws][kHalf];
};

// All draws of 8 lanes from `lane` on, as if no word were rejected. Returns the lanes where one may have to be: the low half of a product
// below the degree, which no bound of the lane exceeds. Size: how.size where it is known to the compiler, else 0.
template <bool Replace, int Size>
SPSAMPLE_AVX2_INLINE unsigned draw(const LaneDraw& how, Lanes& lanes, int lane, const WordsOf& words) {
    const int size = Size > 0 ? Size : how.size;
    const __m256i degree = load(lanes.degree + lane), one = _mm256_set1_epi32(1);
    __m256i last = _mm256_sub_epi32(degree, _mm256_set1_epi32(Replace ? 1 : size));
    Words bound = words_of(_mm256_add_epi32(last, one)), smallest = same_words(0xFFFFFFFF);
#pragma GCC unroll 16
    for (int j = 0; j < size; ++j) {
        const Words product{multiply(load(words.even[j]), bound.even), multiply(load(words.odd[j]), bound.odd)};
        smallest = {_mm256_min_epu32(smallest.even, product.even), _mm256_min_epu32(smallest.odd, product.odd)};
        __m256i position = high_words(product);
        if (!Replace) {
            __m256i taken = _mm256_setzero_si256();
#pragma GCC unroll 16
            for (int k = 0; k < j; ++k) {
                taken = _mm256_or_si256(taken, _mm256_cmpeq_epi32(position, load(lanes.positions[k] + lane)));
            }
            position = _mm256_blendv_epi8(position, last, taken);
            last = _mm256_add_epi32(last, one);
            bound = {_mm256_add_epi32(bound.even, one), _mm256_add_epi32(bound.odd, one)};
        }
        store(lanes.positions[j] + lane, position);
    }
    return mask_of(at_least(low_words(smallest), degree)) ^ 0xFFu;
}

// Writes the words of all draws of 8 lanes.
template <int Size, class Blocks>
SPSAMPLE_AVX2_INLINE void make_words(int size, const Blocks& blocks, WordsOf& words) {
    const int count = ((Size > 0 ? Size : size) + 3) / 4;
#pragma GCC unroll 1
    for (int number = 0; number < count; ++number) {
        const PhiloxLanes random = blocks.block(number);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            store(words.even[4 * number + i], random.w[i].even);
            store(words.odd[4 * number + i], random.w[i].odd);
        }
    }
}

// The 16 lanes. Returns those to be drawn again.
template <bool Replace, int Size>
SPSAMPLE_AVX2 unsigned draw_near(const LaneDraw& how, Lanes& lanes) {
    WordsOf words[2];
#pragma GCC unroll 1
    for (int half = 0; half < 2; ++half) {
        const int lane = half * kHalf;
        const RowBlocks blocks(load(lanes.vertex_low + lane), load(lanes.batch_id + lane), how.starts, how.keys);
        make_words<Size>(how.size, blocks, words[half]);
    }
    unsigned doubtful = 0;
#pragma GCC unroll 1
    for (int half = 0; half < 2; ++half) doubtful |= draw<Replace, Size>(how, lanes, half * kHalf, words[half]) << (half * kHalf);
    return doubtful;
}

// The same for vertices beyond 2^32.
template <bool Replace>
SPSAMPLE_AVX2 unsigned draw_far(const LaneDraw& how, Lanes& lanes) {
    WordsOf words;
    unsigned doubtful = 0;
#pragma GCC unroll 1
    for (int lane = 0; lane < kLanes; lane += kHalf) {
        const __m256i c1 = _mm256_or_si256(load(lanes.vertex_high + lane), _mm256_set1_epi32(static_cast<int>(how.hop << 16)));
        make_words<0>(how.size, CounterBlocks(load(lanes.vertex_low + lane), c1, load(lanes.batch_id + lane), how.keys), words);
        doubtful |= draw<Replace, 0>(how, lanes, lane, words) << lane;
    }
    return doubtful;
}

SPSAMPLE_AVX2_INLINE bool any_far(const Lanes& lanes) {
    const __m256i high = _mm256_or_si256(load(lanes.vertex_high), load(lanes.vertex_high + kHalf));
    return !_mm256_testz_si256(high, high);
}

// With the usual fanouts known to the compiler.
template <bool Replace>
SPSAMPLE_AVX2 unsigned draw_any(const LaneDraw& how, Lanes& lanes) {
    if (any_far(lanes)) return draw_far<Replace>(how, lanes);
    switch (how.size) {
        case 5: return draw_near<Replace, 5>(how, lanes);
        case 10: return draw_near<Replace, 10>(how, lanes);
        case 15: return draw_near<Replace, 15>(how, lanes);
        default: return draw_near<Replace, 0>(how, lanes);
    }
}

SPSAMPLE_AVX2 void draw_lanes(const LaneDraw& how, Lanes& lanes) {
    const unsigned doubtful = how.replace ? draw_any<true>(how, lanes) : draw_any<false>(how, lanes);
    for (unsigned rest = doubtful; rest != 0; rest &= rest - 1) draw_lane(how, lanes, __builtin_ctz(rest));
}

template <class Index>
SPSAMPLE_AVX2 IdRange<Index> id_range(const Index* ids, int64_t count) {
    return id_range_loop(ids, count);
}

template <class Index>
SPSAMPLE_AVX2 int64_t take_new(const BitSets& sets, Index* out, uint32_t first, uint32_t* places) {
    return take_new_by_fours(sets, out, first, places);
}

template <class Index>
SPSAMPLE_AVX2 void place(const RankedWord* ranks, const Index* vertices, int64_t count, uint32_t first, uint32_t* places) {
    place_loop(ranks, vertices, count, first, places);
}

template <class Index>
SPSAMPLE_AVX2 void relabel(const RankedWord* ranks, const uint32_t* places, const Index* vertices, int64_t count, Index* local) {
    relabel_loop(ranks, places, vertices, count, local);
}

}  // namespace

const InstructionSet kAvx2{
    "avx2", draw_lanes, {id_range<int32_t>, take_new<int32_t>, place<int32_t>, relabel<int32_t>},
    {id_range<int64_t>, take_new<int64_t>, place<int64_t>, relabel<int64_t>}};

}  // namespace spsample

#endif
