// 16 lanes as twice 8 in AVX2. As in simd_avx512.cpp, only marked functions may use its instructions.
#include "simd.h"

#if SPSAMPLE_X86

#include <immintrin.h>

#include "simd_ranks.h"

#define SPSAMPLE_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#define SPSAMPLE_AVX2_INLINE __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt"), always_inline)) static inline

namespace spsample {
namespace {

constexpr int kHalf = 8;
constexpr int kOddLanes = 0xAA;

SPSAMPLE_AVX2_INLINE __m256i load(const uint32_t* lanes) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(lanes)); }
SPSAMPLE_AVX2_INLINE void store(uint32_t* lanes, __m256i x) { _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), x); }

// Bit l: whether lane l is all ones.
SPSAMPLE_AVX2_INLINE unsigned mask_of(__m256i lanes) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
}

// All ones where a >= b, unsigned.
SPSAMPLE_AVX2_INLINE __m256i at_least(__m256i a, __m256i b) { return _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a); }

// 8 words in the low halves of 64-bit lanes, as in simd_avx512.cpp.
struct Words {
    __m256i even;
    __m256i odd;
};

SPSAMPLE_AVX2_INLINE Words words_of(__m256i lanes) { return {lanes, _mm256_srli_epi64(lanes, 32)}; }

SPSAMPLE_AVX2_INLINE Words same_words(uint32_t word) {
    const __m256i lanes = _mm256_set1_epi32(static_cast<int>(word));
    return {lanes, lanes};
}

// Four words of 4 counters.
struct Counters {
    __m256i w[4];
};

SPSAMPLE_AVX2_INLINE __m256i xor3(__m256i a, __m256i b, __m256i c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }

// One round of Philox4x32 on 4 counters in the low halves of 64-bit lanes.
SPSAMPLE_AVX2_INLINE Counters philox_round(const Counters& c, __m256i key0, __m256i key1) {
    const __m256i product0 = _mm256_mul_epu32(c.w[0], _mm256_set1_epi64x(0xD2511F53));
    const __m256i product1 = _mm256_mul_epu32(c.w[2], _mm256_set1_epi64x(0xCD9E8D57));
    return {{xor3(_mm256_srli_epi64(product1, 32), c.w[1], key0), product1,
             xor3(_mm256_srli_epi64(product0, 32), c.w[3], key1), product0}};
}

struct PhiloxOutput {
    Words w[4];
};

// Philox4x32-10 of 8 counters.
SPSAMPLE_AVX2_INLINE PhiloxOutput philox(const Words (&counter)[4], const RoundKeys& keys) {
    Counters even{{counter[0].even, counter[1].even, counter[2].even, counter[3].even}};
    Counters odd{{counter[0].odd, counter[1].odd, counter[2].odd, counter[3].odd}};
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const __m256i key0 = _mm256_set1_epi32(static_cast<int>(keys.word0[round]));
        const __m256i key1 = _mm256_set1_epi32(static_cast<int>(keys.word1[round]));
        even = philox_round(even, key0, key1);
        odd = philox_round(odd, key0, key1);
    }
    return {{{even.w[0], odd.w[0]}, {even.w[1], odd.w[1]}, {even.w[2], odd.w[2]}, {even.w[3], odd.w[3]}}};
}

// The high words of the products of even and odd lanes, in their lanes; and the low ones.
SPSAMPLE_AVX2_INLINE __m256i high_words(__m256i even, __m256i odd) {
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, kOddLanes);
}
SPSAMPLE_AVX2_INLINE __m256i low_words(__m256i even, __m256i odd) {
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), kOddLanes);
}

// All draws of 8 lanes from `lane` on, as if no word were rejected. Returns the lanes where one may have to be: product low < t.
template <bool Replace>
SPSAMPLE_AVX2_INLINE unsigned draw(const LaneDraw& how, Lanes& lanes, int lane, __m256i degree) {
    const __m256i c1 = _mm256_or_si256(load(lanes.vertex_high + lane), _mm256_set1_epi32(static_cast<int>(how.hop << 16)));
    Words counter[4] = {words_of(load(lanes.vertex_low + lane)), words_of(c1), {}, same_words(static_cast<uint32_t>(how.batch_id))};
    __m256i safe = _mm256_set1_epi32(-1);
    for (int first = 0; first < how.size; first += 4) {
        counter[2] = same_words(static_cast<uint32_t>(first / 4));
        const PhiloxOutput random = philox(counter, how.keys);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const int j = first + i;
            if (j >= how.size) break;
            const __m256i last = _mm256_add_epi32(degree, _mm256_set1_epi32(j - how.size));
            const __m256i t = Replace ? degree : _mm256_add_epi32(last, _mm256_set1_epi32(1));
            const Words bound = words_of(t);
            const __m256i even = _mm256_mul_epu32(random.w[i].even, bound.even), odd = _mm256_mul_epu32(random.w[i].odd, bound.odd);
            safe = _mm256_and_si256(safe, at_least(low_words(even, odd), t));
            __m256i position = high_words(even, odd);
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
    return take_new_loop(sets, out, first, places);
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
