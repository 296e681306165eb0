// simd.h in AVX-512, 16 lanes (lanes_avx512.h says how such a file is compiled).
#include "simd.h"

#if SPSAMPLE_X86

#include "simd_ranks.h"
#include "vertices_avx512.h"

namespace spsample {
namespace {

using namespace avx512;

// All draws of the lanes' rows, as if no word were rejected. Returns the lanes where one may have to be: the low half of a product below
// the degree, which no bound of the lane exceeds. Size: how.size where it is known to the compiler, else 0.
template <bool Replace, int Size, class Blocks>
SPSAMPLE_AVX512_INLINE __mmask16 draw(const LaneDraw& how, Lanes& lanes, const Blocks& blocks) {
    const int size = Size > 0 ? Size : how.size;
    const __m512i degree = _mm512_load_si512(lanes.degree), one = _mm512_set1_epi32(1);
    __m512i last = _mm512_sub_epi32(degree, _mm512_set1_epi32(Replace ? 1 : size));
    Words bound = words_of(_mm512_add_epi32(last, one)), smallest = same_words(0xFFFFFFFF);
#pragma GCC unroll 4
    for (int first = 0; first < size; first += 4) {
        const PhiloxLanes random = blocks.block(first / 4);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const int j = first + i;
            if (j >= size) break;
            const Words product{multiply(random.w[i].even, bound.even), multiply(random.w[i].odd, bound.odd)};
            smallest = {_mm512_min_epu32(smallest.even, product.even), _mm512_min_epu32(smallest.odd, product.odd)};
            __m512i position = high_words(product);
            if (!Replace) {
                __mmask16 fresh = 0xFFFF;
#pragma GCC unroll 16
                for (int k = 0; k < j; ++k) fresh = _mm512_mask_cmpneq_epi32_mask(fresh, position, _mm512_load_si512(lanes.positions[k]));
                position = _mm512_mask_mov_epi32(last, fresh, position);
                last = _mm512_add_epi32(last, one);
                bound = {_mm512_add_epi32(bound.even, one), _mm512_add_epi32(bound.odd, one)};
            }
            _mm512_store_si512(lanes.positions[j], position);
        }
    }
    return _mm512_cmplt_epu32_mask(low_words(smallest), degree);
}

// With the usual fanouts known to the compiler, for vertices below 2^32.
template <bool Replace>
SPSAMPLE_AVX512_INLINE __mmask16 draw_any(const LaneDraw& how, Lanes& lanes) {
    const __m512i high = _mm512_load_si512(lanes.vertex_high), low = _mm512_load_si512(lanes.vertex_low);
    const __m512i batch_id = _mm512_load_si512(lanes.batch_id);
    if (_mm512_test_epi32_mask(high, high) != 0) {
        const __m512i c1 = _mm512_or_si512(high, _mm512_set1_epi32(static_cast<int>(how.hop << 16)));
        return draw<Replace, 0>(how, lanes, CounterBlocks(low, c1, batch_id, how.keys));
    }
    const RowBlocks blocks(low, batch_id, how.starts, how.keys);
    switch (how.size) {
        case 5: return draw<Replace, 5>(how, lanes, blocks);
        case 10: return draw<Replace, 10>(how, lanes, blocks);
        case 15: return draw<Replace, 15>(how, lanes, blocks);
        default: return draw<Replace, 0>(how, lanes, blocks);
    }
}

SPSAMPLE_AVX512 void draw_lanes(const LaneDraw& how, Lanes& lanes) {
    const __mmask16 doubtful = how.replace ? draw_any<true>(how, lanes) : draw_any<false>(how, lanes);
    for (unsigned rest = doubtful; rest != 0; rest &= rest - 1) draw_lane(how, lanes, __builtin_ctz(rest));
}

template <class Index>
SPSAMPLE_AVX512 IdRange<Index> id_range(const Index* ids, int64_t count) {
    return id_range_loop(ids, count);
}

SPSAMPLE_AVX512_INLINE __m512i counting_from(uint32_t first) {
    return _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                            _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

// first, first + 1, ... at the ranks of the word's added vertices. Returns the next number; writes up to kLanes numbers further.
SPSAMPLE_AVX512_INLINE uint32_t write_places(const TakenWord& word, uint32_t first, uint32_t* places) {
    uint64_t added = _pext_u64(word.added, word.all);  // bit r: whether the vertex of rank word.rank + r is new
    places += word.rank;
    for (int left = __builtin_popcountll(word.all); left > 0; left -= kLanes) {
        const __mmask16 chosen = static_cast<__mmask16>(added);
        _mm512_storeu_si512(places, _mm512_maskz_expand_epi32(chosen, counting_from(first)));
        first += static_cast<uint32_t>(__builtin_popcount(chosen));
        added >>= kLanes;
        places += kLanes;
    }
    return first;
}

template <class Index>
SPSAMPLE_AVX512 int64_t take_new(const BitSets& sets, Index* out, uint32_t first, uint32_t* places) {
    const Index* const begin = out;
    uint32_t rank = 0;
    for (int64_t group = 0; group < sets.num_words; group += kWordsPerGroup) {
        for (uint64_t nonempty = nonempty_words(sets.found + group, sets.known + group); nonempty != 0; nonempty &= nonempty - 1) {
            const int64_t w = group + lowest_bit(nonempty);
            const TakenWord word = take_word(sets, w, &rank);
            out = write_vertices(word.added, w, out);
            first = write_places(word, first, places);
        }
    }
    return out - begin;
}

template <class Index>
SPSAMPLE_AVX512 void place(const RankedWord* ranks, const Index* vertices, int64_t count, uint32_t first, uint32_t* places) {
    place_loop(ranks, vertices, count, first, places);
}

template <class Index>
SPSAMPLE_AVX512 void relabel(const RankedWord* ranks, const uint32_t* places, const Index* vertices, int64_t count, Index* local) {
    relabel_loop(ranks, places, vertices, count, local);
}

}  // namespace

const InstructionSet kAvx512{
    "avx512", draw_lanes, {id_range<int32_t>, take_new<int32_t>, place<int32_t>, relabel<int32_t>},
    {id_range<int64_t>, take_new<int64_t>, place<int64_t>, relabel<int64_t>}};

}  // namespace spsample

#endif
