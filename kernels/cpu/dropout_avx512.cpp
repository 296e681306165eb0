// dropout.h in AVX-512, the sixteen counters of a group at a time (lanes_avx512.h says how such a file is compiled).
#include "dropout.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

using namespace avx512;

constexpr int64_t kPerWord = 16;

struct AllNumbers {
    static constexpr DropNumbers kPortable = drop_numbers_portable;
    SPSAMPLE_AVX512_INLINE __mmask16 kept(__mmask16 drawn, __m512) { return drawn; }
};

struct RectifiedNumbers {
    static constexpr DropNumbers kPortable = drop_rectified_portable;
    SPSAMPLE_AVX512_INLINE __mmask16 kept(__mmask16 drawn, __m512 x) {
        return _mm512_mask_cmp_ps_mask(drawn, x, _mm512_setzero_ps(), _CMP_NLE_UQ);
    }
};

// How the numbers of a group are dropped by their upper bits alone.
struct GroupRule {
    __m512i upper, least;
    __m512 scale;
    uint32_t undecided;  // not 0 where the bits of some number are those of `least`
};

// Sixteen numbers whose bits are the upper ones of some words.
template <class Numbers>
SPSAMPLE_AVX512_INLINE void drop(GroupRule& rule, __m512i words, const float* x, float* out) {
    const __m512i bits = _mm512_and_si512(words, rule.upper);
    const __m512 numbers = _mm512_loadu_ps(x);
    rule.undecided |= _mm512_cmpeq_epi32_mask(bits, rule.least);
    const __mmask16 kept = Numbers::kept(_mm512_cmpge_epu32_mask(bits, rule.least), numbers);
    _mm512_storeu_ps(out, _mm512_maskz_mul_ps(kept, numbers, rule.scale));
}

template <class Numbers>
SPSAMPLE_AVX512_INLINE void drop_numbers(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    const __m512i ascending = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const bool upper_bits_decide = rule.upper_bits_decide();
    int64_t first = begin;
    for (; first + kDropoutGroup <= end; first += kDropoutGroup) {
        const uint64_t group = static_cast<uint64_t>(first / kDropoutGroup * kPerWord);
        GroupRule of_group{same_lanes(0xFFFF0000), same_lanes(rule.least_upper()), _mm512_set1_ps(rule.scale), 0};
        const __m512i low = _mm512_add_epi32(same_lanes(static_cast<uint32_t>(group)), ascending);
        const PhiloxLanes words =
            philox({{words_of(low), same_words(static_cast<uint32_t>(group >> 32)), same_words(0), same_words(0)}}, rule.keys);
        for (int word = 0; word < 4; ++word) {
            const __m512i both = low_words(words.w[word]);
            const int64_t i = first + 2 * kPerWord * word;
            drop<Numbers>(of_group, _mm512_slli_epi32(both, 16), x + i, out + i);
            drop<Numbers>(of_group, both, x + i + kPerWord, out + i + kPerWord);
        }
        if (of_group.undecided && !upper_bits_decide) Numbers::kPortable(rule, x, first, first + kDropoutGroup, out);
    }
    Numbers::kPortable(rule, x, first, end, out);
}

}  // namespace

SPSAMPLE_AVX512 void drop_numbers_avx512(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_numbers<AllNumbers>(rule, x, begin, end, out);
}

SPSAMPLE_AVX512 void drop_rectified_avx512(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_numbers<RectifiedNumbers>(rule, x, begin, end, out);
}

}  // namespace spsample

#endif
