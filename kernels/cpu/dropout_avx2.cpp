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
    SPSAMPLE_AVX2_INLINE __m256 kept(__m256 drawn, __m256) { return drawn; }
};

struct RectifiedNumbers {
    SPSAMPLE_AVX2_INLINE __m256 kept(__m256 drawn, __m256 x) {
        return _mm256_and_ps(drawn, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NLE_UQ));
    }
};

// Returns where the numbers begin that fill no group.
template <class Numbers>
SPSAMPLE_AVX2_INLINE int64_t drop_groups(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    const __m256 scale = _mm256_set1_ps(rule.scale);
    const __m256i least = same_lanes(rule.least), ascending = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    int64_t first = begin;
    for (; first + kDropoutGroup <= end; first += kDropoutGroup) {
        const uint64_t group = static_cast<uint64_t>(first / kDropoutGroup * kPerWord);
        for (int half = 0; half < kPerWord; half += kHalf) {
            const __m256i low = _mm256_add_epi32(same_lanes(static_cast<uint32_t>(group) + half), ascending);
            const PhiloxLanes words = philox(
                {{words_of(low), same_words(static_cast<uint32_t>(group >> 32)), same_words(0), same_words(0)}}, rule.keys);
            for (int word = 0; word < 4; ++word) {
                const int64_t i = first + kPerWord * word + half;
                const __m256 numbers = _mm256_loadu_ps(x + i);
                const __m256 kept = Numbers::kept(_mm256_castsi256_ps(at_least(low_words(words.w[word]), least)), numbers);
                _mm256_storeu_ps(out + i, _mm256_and_ps(kept, _mm256_mul_ps(numbers, scale)));
            }
        }
    }
    return first;
}

}  // namespace

SPSAMPLE_AVX2 void drop_numbers_avx2(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_numbers_portable(rule, x, drop_groups<AllNumbers>(rule, x, begin, end, out), end, out);
}

SPSAMPLE_AVX2 void drop_rectified_avx2(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_rectified_portable(rule, x, drop_groups<RectifiedNumbers>(rule, x, begin, end, out), end, out);
}

}  // namespace spsample

#endif
