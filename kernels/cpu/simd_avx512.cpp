// 16 lanes in AVX-512. Only functions marked SPSAMPLE_AVX512 may use its instructions: the file itself is compiled for any
// x86-64, so that no inline function of a header is.
#include "simd.h"

#if SPSAMPLE_X86

#include <immintrin.h>

#include "simd_ranks.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of _mm512_undefined_epi32 in its own headers
#endif

#define SPSAMPLE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi,bmi2,lzcnt,popcnt")))
#define SPSAMPLE_AVX512_INLINE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi,bmi2,lzcnt,popcnt"), always_inline)) static inline

namespace spsample {
namespace {

constexpr __mmask16 kOddLanes = 0xAAAA;

constexpr __mmask16 kEvenLanes = 0x5555;

// 16 words in the low halves of 64-bit lanes: those of the even lanes, and those of the odd ones. What is in the high halves
// does not count: neither a multiplication nor an exclusive or of the low halves looks at it.
struct Words {
    __m512i even;
    __m512i odd;
};

SPSAMPLE_AVX512_INLINE Words words_of(__m512i lanes) { return {lanes, _mm512_srli_epi64(lanes, 32)}; }

SPSAMPLE_AVX512_INLINE Words same_words(uint32_t word) {
    const __m512i lanes = _mm512_set1_epi32(static_cast<int>(word));
    return {lanes, lanes};
}

// Four words of 8 counters.
struct Counters {
    __m512i w[4];
};

SPSAMPLE_AVX512_INLINE __m512i xor3(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

// One round of Philox4x32 on 8 counters in the low halves of 64-bit lanes: the products' low words need not be moved.
SPSAMPLE_AVX512_INLINE Counters philox_round(const Counters& c, __m512i key0, __m512i key1) {
    const __m512i product0 = _mm512_mul_epu32(c.w[0], _mm512_set1_epi64(0xD2511F53));
    const __m512i product1 = _mm512_mul_epu32(c.w[2], _mm512_set1_epi64(0xCD9E8D57));
    return {{xor3(_mm512_srli_epi64(product1, 32), c.w[1], key0), product1,
             xor3(_mm512_srli_epi64(product0, 32), c.w[3], key1), product0}};
}

struct PhiloxOutput {
    Words w[4];
};

// Philox4x32-10 of 16 counters.
SPSAMPLE_AVX512_INLINE PhiloxOutput philox(const Words (&counter)[4], const RoundKeys& keys) {
    Counters even{{counter[0].even, counter[1].even, counter[2].even, counter[3].even}};
    Counters odd{{counter[0].odd, counter[1].odd, counter[2].odd, counter[3].odd}};
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const __m512i key0 = _mm512_set1_epi32(static_cast<int>(keys.word0[round]));
        const __m512i key1 = _mm512_set1_epi32(static_cast<int>(keys.word1[round]));
        even = philox_round(even, key0, key1);
        odd = philox_round(odd, key0, key1);
    }
    return {{{even.w[0], odd.w[0]}, {even.w[1], odd.w[1]}, {even.w[2], odd.w[2]}, {even.w[3], odd.w[3]}}};
}

// All draws of the lanes' rows, as if no word were rejected. Returns the lanes where one may have to be: product low < t.
// Size: how.size where it is known to the compiler, else 0.
template <bool Replace, int Size>
SPSAMPLE_AVX512_INLINE __mmask16 draw(const LaneDraw& how, Lanes& lanes, __m512i degree) {
    const int size = Size > 0 ? Size : how.size;
    const __m512i c1 = _mm512_or_si512(_mm512_load_si512(lanes.vertex_high), _mm512_set1_epi32(static_cast<int>(how.hop << 16)));
    Words counter[4] = {words_of(_mm512_load_si512(lanes.vertex_low)), words_of(c1), {}, same_words(static_cast<uint32_t>(how.batch_id))};
    __mmask16 doubtful_even = 0, doubtful_odd = 0;
#pragma GCC unroll 4
    for (int first = 0; first < size; first += 4) {
        counter[2] = same_words(static_cast<uint32_t>(first / 4));
        const PhiloxOutput random = philox(counter, how.keys);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const int j = first + i;
            if (j >= size) break;
            const __m512i last = _mm512_add_epi32(degree, _mm512_set1_epi32(j - size));
            const Words t = words_of(Replace ? degree : _mm512_add_epi32(last, _mm512_set1_epi32(1)));
            const __m512i even = _mm512_mul_epu32(random.w[i].even, t.even), odd = _mm512_mul_epu32(random.w[i].odd, t.odd);
            doubtful_even |= _mm512_cmplt_epu32_mask(even, t.even);
            doubtful_odd |= _mm512_cmplt_epu32_mask(odd, t.odd);
            __m512i position = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), kOddLanes, odd);
            if (!Replace) {
                __mmask16 taken = 0;
#pragma GCC unroll 16
                for (int k = 0; k < j; ++k) taken |= _mm512_cmpeq_epi32_mask(position, _mm512_load_si512(lanes.positions[k]));
                position = _mm512_mask_mov_epi32(position, taken, last);
            }
            _mm512_store_si512(lanes.positions[j], position);
        }
    }
    return static_cast<__mmask16>((doubtful_even & kEvenLanes) | ((doubtful_odd & kEvenLanes) << 1));
}

// With the usual fanouts known to the compiler.
template <bool Replace>
SPSAMPLE_AVX512_INLINE __mmask16 draw_any(const LaneDraw& how, Lanes& lanes, __m512i degree) {
    switch (how.size) {
        case 5: return draw<Replace, 5>(how, lanes, degree);
        case 10: return draw<Replace, 10>(how, lanes, degree);
        case 15: return draw<Replace, 15>(how, lanes, degree);
        default: return draw<Replace, 0>(how, lanes, degree);
    }
}

SPSAMPLE_AVX512 void draw_lanes(const LaneDraw& how, Lanes& lanes) {
    const __m512i degree = _mm512_load_si512(lanes.degree);
    __mmask16 doubtful;
    if (how.replace) {
        doubtful = draw_any<true>(how, lanes, degree) & _mm512_test_epi32_mask(degree, degree);
    } else {
        const __m512i size = _mm512_set1_epi32(how.size);
        const __mmask16 whole = _mm512_cmple_epu32_mask(degree, size);
        doubtful = whole == 0xFFFF ? 0 : draw_any<false>(how, lanes, _mm512_max_epu32(degree, size)) & static_cast<__mmask16>(~whole);
        if (whole != 0) {
            for (int j = 0; j < how.size; ++j) _mm512_mask_store_epi32(lanes.positions[j], whole, _mm512_set1_epi32(j));
        }
    }
    for (unsigned rest = doubtful; rest != 0; rest &= rest - 1) draw_lane(how, lanes, __builtin_ctz(rest));
}

template <class Index>
SPSAMPLE_AVX512 IdRange<Index> id_range(const Index* ids, int64_t count) {
    return id_range_loop(ids, count);
}

// The bytes 0, 1, ..., 63.
SPSAMPLE_AVX512_INLINE __m512i counting_bytes() {
    return _mm512_set_epi64(0x3F3E3D3C3B3A3938, 0x3736353433323130, 0x2F2E2D2C2B2A2928, 0x2726252423222120, 0x1F1E1D1C1B1A1918,
                            0x1716151413121110, 0x0F0E0D0C0B0A0908, 0x0706050403020100);
}

SPSAMPLE_AVX512_INLINE __m512i counting_from(uint32_t first) {
    return _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                            _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

// The vertices 64 w + i of the bits i of word w, ascending. Returns where the next go; writes up to kLanes vertices further.
SPSAMPLE_AVX512_INLINE int32_t* write_vertices(uint64_t bits, int64_t w, int32_t* out) {
    const __m512i first = _mm512_set1_epi32(static_cast<int>(64 * w));
    const int count = __builtin_popcountll(bits);
    __m512i left = _mm512_maskz_compress_epi8(bits, counting_bytes());
    _mm512_storeu_si512(out, _mm512_add_epi32(first, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(left))));
    for (int done = kLanes; done < count; done += kLanes) {
        left = _mm512_alignr_epi64(left, left, 2);  // 16 bytes down
        _mm512_storeu_si512(out + done, _mm512_add_epi32(first, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(left))));
    }
    return out + count;
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
SPSAMPLE_AVX512 int64_t take_new(const BitSets& sets, Index* out, uint32_t first, uint32_t* places) {
    const Index* const begin = out;
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
