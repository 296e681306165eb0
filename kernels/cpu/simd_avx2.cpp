// simd.h in AVX2: 16 lanes as twice 8 (lanes_avx2.h says how such a file is compiled).
#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"
#include "simd_ranks.h"
#include "words_avx2.h"

namespace spsample {
namespace {

using namespace avx2;

// All draws of 8 lanes from `lane` on, as if no word were rejected. Returns the lanes where one may have to be: product low < t.
template <bool Replace>
SPSAMPLE_AVX2_INLINE unsigned draw(const LaneDraw& how, Lanes& lanes, int lane, __m256i degree) {
    const __m256i c1 = _mm256_or_si256(load(lanes.vertex_high + lane), _mm256_set1_epi32(static_cast<int>(how.hop << 16)));
    PhiloxLanes counter{{words_of(load(lanes.vertex_low + lane)), words_of(c1), {}, words_of(load(lanes.batch_id + lane))}};
    __m256i safe = _mm256_set1_epi32(-1);
    for (int first = 0; first < how.size; first += 4) {
        counter.w[2] = same_words(static_cast<uint32_t>(first / 4));
        const PhiloxLanes random = philox(counter, how.keys);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const int j = first + i;
            if (j >= how.size) break;
            const __m256i last = _mm256_add_epi32(degree, _mm256_set1_epi32(j - how.size));
            const __m256i t = Replace ? degree : _mm256_add_epi32(last, _mm256_set1_epi32(1));
            const Words bound = words_of(t);
            const Words product{_mm256_mul_epu32(random.w[i].even, bound.even), _mm256_mul_epu32(random.w[i].odd, bound.odd)};
            safe = _mm256_and_si256(safe, at_least(low_words(product), t));
            __m256i position = high_words(product);
            if (!Replace) {
                __m256i taken = _mm256_setzero_si256();
                for (int k = 0; k < j; ++k) {
                    taken = _mm256_or_si256(taken, _mm256_cmpeq_epi32(position, load(lanes.positions[k] + lane)));
                }
                position = _mm256_blendv_epi8(position, last, taken);
            }
            store(lanes.positions[j] + lane, position);
        }
    }
    return mask_of(safe) ^ 0xFFu;
}

// Draws 8 lanes; returns those to be drawn again.
SPSAMPLE_AVX2_INLINE unsigned draw_half(const LaneDraw& how, Lanes& lanes, int lane) {
    const __m256i degree = load(lanes.degree + lane);
    if (how.replace) {
        const unsigned empty = mask_of(_mm256_cmpeq_epi32(degree, _mm256_setzero_si256()));
        return draw<true>(how, lanes, lane, degree) & ~empty;
    }
    const __m256i size = _mm256_set1_epi32(how.size);
    const __m256i whole = at_least(size, degree);
    const unsigned whole_mask = mask_of(whole);
    unsigned doubtful = 0;
    if (whole_mask != 0xFF) doubtful = draw<false>(how, lanes, lane, _mm256_max_epu32(degree, size)) & ~whole_mask;
    if (whole_mask != 0) {
        for (int j = 0; j < how.size; ++j) {
            const __m256i position = load(lanes.positions[j] + lane);
            store(lanes.positions[j] + lane, _mm256_blendv_epi8(position, _mm256_set1_epi32(j), whole));
        }
    }
    return doubtful;
}

SPSAMPLE_AVX2 void draw_lanes(const LaneDraw& how, Lanes& lanes) {
    const unsigned doubtful = draw_half(how, lanes, 0) | draw_half(how, lanes, kHalf) << kHalf;
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
