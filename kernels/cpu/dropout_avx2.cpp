// dropout.h in AVX2, eight counters at a time (lanes_avx2.h says how such a file is compiled).
#include "dropout.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

using namespace avx2;

constexpr int64_t kPerWord = 16;

struct AllNumbers {
    static constexpr DropNumbers kPortable = drop_numbers_portable;
    SPSAMPLE_AVX2_INLINE __m256 kept(__m256 drawn, __m256) { return drawn; }
};

struct RectifiedNumbers {
    static constexpr DropNumbers kPortable = drop_rectified_portable;
    SPSAMPLE_AVX2_INLINE __m256 kept(__m256 drawn, __m256 x) {
        return _mm256_and_ps(drawn, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NLE_UQ));
    }
};

// How the numbers of a group are dropped by their upper bits alone.
struct GroupRule {
    __m256i upper, least;
    __m256 scale;
    __m256i undecided;  // not 0 in the lanes in which the bits of some number are those of `least`
};

// Eight numbers whose bits are the upper ones of some words.
template <class Numbers>
SPSAMPLE_AVX2_INLINE void drop(GroupRule& rule, __m256i words, const float* x, float* out) {
    const __m256i bits = _mm256_and_si256(words, rule.upper);
    const __m256 numbers = _mm256_loadu_ps(x);
    rule.undecided = _mm256_or_si256(rule.undecided, _mm256_cmpeq_epi32(bits, rule.least));
    const __m256 kept = Numbers::kept(_mm256_castsi256_ps(at_least(bits, rule.least)), numbers);
    _mm256_storeu_ps(out, _mm256_and_ps(kept, _mm256_mul_ps(numbers, rule.scale)));
}

template <class Numbers>
SPSAMPLE_AVX2_INLINE void drop_numbers(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    const __m256i ascending = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const bool upper_bits_decide = rule.upper_bits_decide();
    int64_t first = begin;
    for (; first + kDropoutGroup <= end; first += kDropoutGroup) {
        const uint64_t group = static_cast<uint64_t>(first / kDropoutGroup * kPerWord);
        GroupRule of_group{same_lanes(0xFFFF0000), same_lanes(rule.least_upper()), _mm256_set1_ps(rule.scale), _mm256_setzero_si256()};
        for (int half = 0; half < kPerWord; half += kHalf) {
            const __m256i low = _mm256_add_epi32(same_lanes(static_cast<uint32_t>(group) + half), ascending);
            const PhiloxLanes words = philox(
                {{words_of(low), same_words(static_cast<uint32_t>(group >> 32)), same_words(0), same_words(0)}}, rule.keys);
            for (int word = 0; word < 4; ++word) {
                const __m256i both = low_words(words.w[word]);
                const int64_t i = first + 2 * kPerWord * word + half;
                drop<Numbers>(of_group, _mm256_slli_epi32(both, 16), x + i, out + i);
                drop<Numbers>(of_group, both, x + i + kPerWord, out + i + kPerWord);
            }
        }
        const bool all_decided = upper_bits_decide || _mm256_testz_si256(of_group.undecided, of_group.undecided);
        if (!all_decided) Numbers::kPortable(rule, x, first, first + kDropoutGroup, out);
    }
    Numbers::kPortable(rule, x, first, end, out);
}

}  // namespace

SPSAMPLE_AVX2 void drop_numbers_avx2(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_numbers<AllNumbers>(rule, x, begin, end, out);
}

SPSAMPLE_AVX2 void drop_rectified_avx2(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_numbers<RectifiedNumbers>(rule, x, begin, end, out);
}

}  // namespace spsample

#endif
