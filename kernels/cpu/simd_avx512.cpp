// 16 lanes in AVX-512. Only functions marked SPSAMPLE_AVX512 may use its instructions: the file itself is compiled for any
// x86-64, so that no inline function of a header is.
#include "simd.h"

#if SPSAMPLE_X86

#include <immintrin.h>

#include "simd_ranks.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of _mm512_undefined_epi32 in its own headers
#endif

#define SPSAMPLE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,lzcnt,popcnt")))
#define SPSAMPLE_AVX512_INLINE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,lzcnt,popcnt"), always_inline)) static inline

namespace spsample {
namespace {

constexpr __mmask16 kOddLanes = 0xAAAA;

// 64-bit products of 16 pairs of 32-bit words, as their high and low words. `odd_b` holds b's odd lanes moved down by one.
struct Products {
    __m512i high;
    __m512i low;
};

SPSAMPLE_AVX512_INLINE Products multiply(__m512i a, __m512i b, __m512i odd_b) {
    const __m512i even = _mm512_mul_epu32(a, b);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), odd_b);
    return {_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), kOddLanes, odd),
            _mm512_mask_mov_epi32(even, kOddLanes, _mm512_slli_epi64(odd, 32))};
}

struct Words {
    __m512i w[4];
};

SPSAMPLE_AVX512_INLINE __m512i xor3(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

// Philox4x32-10 of 16 counters under one key.
SPSAMPLE_AVX512_INLINE Words philox(Words c, PhiloxKey key) {
    const __m512i multiplier0 = _mm512_set1_epi64(0xD2511F53), multiplier1 = _mm512_set1_epi64(0xCD9E8D57);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        const Products p0 = multiply(c.w[0], multiplier0, multiplier0);
        const Products p1 = multiply(c.w[2], multiplier1, multiplier1);
        const __m512i key0 = _mm512_set1_epi32(static_cast<int>(key.word0));
        const __m512i key1 = _mm512_set1_epi32(static_cast<int>(key.word1));
        c = {{xor3(p1.high, c.w[1], key0), p1.low, xor3(p0.high, c.w[3], key1), p0.low}};
        key.word0 += 0x9E3779B9u;
        key.word1 += 0xBB67AE85u;
    }
    return c;
}

// All draws of the lanes' rows, as if no word were rejected. Returns the lanes where one may have to be: product low < t.
template <bool Replace>
SPSAMPLE_AVX512_INLINE __mmask16 draw(const LaneDraw& how, Lanes& lanes, __m512i degree) {
    const __m512i c0 = _mm512_load_si512(lanes.vertex_low);
    const __m512i c1 = _mm512_or_si512(_mm512_load_si512(lanes.vertex_high), _mm512_set1_epi32(static_cast<int>(how.hop << 16)));
    const __m512i c3 = _mm512_set1_epi32(static_cast<int>(static_cast<uint32_t>(how.batch_id)));
    __mmask16 doubtful = 0;
    for (int first = 0; first < how.size; first += 4) {
        const Words words = philox({{c0, c1, _mm512_set1_epi32(first / 4), c3}}, how.key);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const int j = first + i;
            if (j >= how.size) break;
            const __m512i last = _mm512_add_epi32(degree, _mm512_set1_epi32(j - how.size));
            const __m512i t = Replace ? degree : _mm512_add_epi32(last, _mm512_set1_epi32(1));
            const Products product = multiply(words.w[i], t, _mm512_srli_epi64(t, 32));
            doubtful |= _mm512_cmplt_epu32_mask(product.low, t);
            __m512i position = product.high;
            if (!Replace) {
                __mmask16 taken = 0;
                for (int k = 0; k < j; ++k) taken |= _mm512_cmpeq_epi32_mask(position, _mm512_load_si512(lanes.positions[k]));
                position = _mm512_mask_mov_epi32(position, taken, last);
            }
            _mm512_store_si512(lanes.positions[j], position);
        }
    }
    return doubtful;
}

SPSAMPLE_AVX512 void draw_lanes(const LaneDraw& how, Lanes& lanes) {
    const __m512i degree = _mm512_load_si512(lanes.degree);
    __mmask16 doubtful;
    if (how.replace) {
        doubtful = draw<true>(how, lanes, degree) & _mm512_test_epi32_mask(degree, degree);
    } else {
        const __m512i size = _mm512_set1_epi32(how.size);
        const __mmask16 whole = _mm512_cmple_epu32_mask(degree, size);
        doubtful = whole == 0xFFFF ? 0 : draw<false>(how, lanes, _mm512_max_epu32(degree, size)) & static_cast<__mmask16>(~whole);
        if (whole != 0) {
            for (int j = 0; j < how.size; ++j) _mm512_mask_store_epi32(lanes.positions[j], whole, _mm512_set1_epi32(j));
        }
    }
    for (unsigned rest = doubtful; rest != 0; rest &= rest - 1) draw_lane(how, lanes, __builtin_ctz(rest));
}

SPSAMPLE_AVX512 int64_t count_new(const BitSets& sets) { return count_new_loop(sets); }

SPSAMPLE_AVX512_INLINE __m512i counting_from(uint32_t first) {
    return _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                            _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

// The vertices 64 w + i of the bits i of word w, ascending. Returns where the next go; writes up to kLanes vertices further.
SPSAMPLE_AVX512_INLINE int32_t* write_vertices(uint64_t bits, int64_t w, int32_t* out) {
    for (uint32_t first = 0; first < 64; first += kLanes) {
        const __mmask16 chosen = static_cast<__mmask16>(bits >> first);
        const __m512i vertices = counting_from(static_cast<uint32_t>(64 * w) + first);
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(chosen, vertices));
        out += __builtin_popcount(chosen);
    }
    return out;
}

SPSAMPLE_AVX512_INLINE int64_t* write_vertices(uint64_t bits, int64_t w, int64_t* out) {
    for (; bits != 0; bits &= bits - 1) *out++ = 64 * w + lowest_bit(bits);
    return out;
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
SPSAMPLE_AVX512 void take_new(const BitSets& sets, Index* out, uint32_t first, uint32_t* places) {
    uint32_t rank = 0;
    for (int64_t eight = 0; eight < sets.num_words; eight += 8) {  // num_words is a multiple of 8
        const __m512i any = _mm512_or_si512(_mm512_loadu_si512(sets.found + eight), _mm512_loadu_si512(sets.known + eight));
        for (unsigned rest = _mm512_test_epi64_mask(any, any); rest != 0; rest &= rest - 1) {
            const int64_t w = eight + __builtin_ctz(rest);
            const TakenWord word = take_word(sets, w, &rank);
            out = write_vertices(word.added, w, out);
            first = write_places(word, first, places);
        }
    }
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
    "avx512", draw_lanes, count_new, {take_new<int32_t>, place<int32_t>, relabel<int32_t>},
    {take_new<int64_t>, place<int64_t>, relabel<int64_t>}};

}  // namespace spsample

#endif
