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
    SPSAMPLE_AVX512_INLINE __mmask16 kept(__mmask16 drawn, __m512) { return drawn; }
};

struct RectifiedNumbers {
    SPSAMPLE_AVX512_INLINE __mmask16 kept(__mmask16 drawn, __m512 x) {
        return _mm512_mask_cmp_ps_mask(drawn, x, _mm512_setzero_ps(), _CMP_NLE_UQ);
    }
};

// Returns where the numbers begin that fill no group.
template <class Numbers>
SPSAMPLE_AVX512_INLINE int64_t drop_groups(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    const __m512 scale = _mm512_set1_ps(rule.scale);
    const __m512i least = same_lanes(rule.least);
    const __m512i ascending = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int64_t first = begin;
    for (; first + kDropoutGroup <= end; first += kDropoutGroup) {
        const uint64_t group = static_cast<uint64_t>(first / kDropoutGroup * kPerWord);
        const __m512i low = _mm512_add_epi32(same_lanes(static_cast<uint32_t>(group)), ascending);
        const PhiloxLanes words =
            philox({{words_of(low), same_words(static_cast<uint32_t>(group >> 32)), same_words(0), same_words(0)}}, rule.keys);
        for (int word = 0; word < 4; ++word) {
            const int64_t i = first + kPerWord * word;
            const __m512 numbers = _mm512_loadu_ps(x + i);
            const __mmask16 kept = Numbers::kept(_mm512_cmpge_epu32_mask(low_words(words.w[word]), least), numbers);
            _mm512_storeu_ps(out + i, _mm512_maskz_mul_ps(kept, numbers, scale));
        }
    }
    return first;
}

}  // namespace

SPSAMPLE_AVX512 void drop_numbers_avx512(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_numbers_portable(rule, x, drop_groups<AllNumbers>(rule, x, begin, end, out), end, out);
}

SPSAMPLE_AVX512 void drop_rectified_avx512(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out) {
    drop_rectified_portable(rule, x, drop_groups<RectifiedNumbers>(rule, x, begin, end, out), end, out);
}

}  // namespace spsample

#endif
