// Trees of weights in AVX-512 (lanes_avx512.h says how such a file is compiled).
#include <algorithm>
#include <limits>

#include "simd.h"
#include "row_law_ranks.h"
#include "row_law_tree.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

#define SPSAMPLE_LOOP SPSAMPLE_AVX512_INLINE
#define SPSAMPLE_LOOP_LAMBDA SPSAMPLE_AVX512_MEMBER
#define SPSAMPLE_LOOP_MEMBER SPSAMPLE_AVX512_MEMBER inline

namespace kernel {

constexpr int kVectorBytes = 64;
constexpr bool kOwnLoopOfUsualFanouts = true;

using Bound = __m512i;

SPSAMPLE_AVX512_INLINE Bound bound(const uint32_t* unit) { return _mm512_set1_epi32(static_cast<int>(*unit)); }

SPSAMPLE_AVX512_INLINE uint32_t count_below(const uint32_t* block, Bound bound) {
    return static_cast<uint32_t>(__builtin_popcount(_mm512_cmpgt_epu32_mask(bound, _mm512_load_si512(block))));
}

using Mask = __mmask16;

SPSAMPLE_AVX512_INLINE Mask equal(const uint32_t* block, uint32_t, Bound bound, uint32_t) {
    return _mm512_cmpeq_epi32_mask(bound, _mm512_load_si512(block));
}

// The distinct positions of a lane, in its own place; the first 16 in a register, too.
struct Distinct {
    uint32_t* positions;  // every 16th element
    int count = 0;
    __m512i first;

    SPSAMPLE_AVX512_MEMBER explicit Distinct(uint32_t* of_lane) : positions(of_lane), first(_mm512_setzero_si512()) {}

    // Adds a position of which it is known whether it repeats one before it.
    SPSAMPLE_AVX512_MEMBER void add_known(uint32_t position, bool repeated) {
        const uint32_t place = count < kTreeLanes ? 1u << count : 0;
        first = _mm512_mask_mov_epi32(first, static_cast<__mmask16>(place), _mm512_set1_epi32(static_cast<int>(position)));
        positions[count * kTreeLanes] = position;
        count += repeated ? 0 : 1;
    }

    SPSAMPLE_AVX512_MEMBER void add(uint32_t position) {
        const __m512i wanted = _mm512_set1_epi32(static_cast<int>(position));
        bool found = (_mm512_cmpeq_epi32_mask(first, wanted) & _bzhi_u32(0xFFFF, static_cast<uint32_t>(count))) != 0;
        for (int j = kTreeLanes; j < count; ++j) found |= positions[j * kTreeLanes] == position;
        const uint32_t place = count < kTreeLanes ? 1u << count : 0;
        first = _mm512_mask_mov_epi32(first, static_cast<__mmask16>(place), wanted);
        positions[count * kTreeLanes] = position;
        count += found ? 0 : 1;
    }
};

// Bit l of repeated[j]: whether position j of lane l is among those before it, for first <= j < end. Returns them all together.
SPSAMPLE_AVX512_INLINE uint32_t repeats(const LaneWords* positions, int first, int end, uint32_t* repeated) {
    uint32_t all = 0;
    for (int draw = first; draw < end; ++draw) {
        const __m512i here = _mm512_load_si512(positions[draw]);
        uint32_t equal = 0;
        for (int before = 0; before < draw; ++before) equal |= _mm512_cmpeq_epi32_mask(here, _mm512_load_si512(positions[before]));
        repeated[draw] = equal;
        all |= equal;
    }
    return all;
}

SPSAMPLE_AVX512_INLINE void philox(const LaneCounters& c, const TreeDraw& how, int, LaneWords* words) {
    const avx512::PhiloxLanes drawn = avx512::philox(
        {{avx512::words_of(_mm512_load_si512(c.words[0])), avx512::words_of(_mm512_load_si512(c.words[1])),
          avx512::words_of(_mm512_load_si512(c.words[2])), avx512::words_of(_mm512_load_si512(c.words[3]))}},
        how.keys);
    for (int i = 0; i < 4; ++i) _mm512_store_si512(words[i], avx512::low_words(drawn.w[i]));
}

// rint(w scale) of eight weights w.
SPSAMPLE_AVX512_INLINE __m512i rounded8(__m512d weights, __m512d scale) {
    return _mm512_cvt_roundpd_epi64(_mm512_mul_pd(weights, scale), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// The low halves of 16 integers.
SPSAMPLE_AVX512_INLINE __m512i low_halves(__m512i first, __m512i second) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi32(first, even, second);
}

// Low halves of the numerators of 16 weights of a narrow row. None of a positive weight is rounded to 0, for each is at least 2^11
// or an integer.
template <class Real>
class NarrowScale;

template <>
class NarrowScale<double> {
public:
    SPSAMPLE_AVX512_MEMBER explicit NarrowScale(double scale) : scale_(_mm512_set1_pd(scale)) {}

    SPSAMPLE_AVX512_MEMBER __m512i numerators(const double* weights) const { return low_halves(rounded(weights), rounded(weights + 8)); }

private:
    SPSAMPLE_AVX512_MEMBER __m512i rounded(const double* weights) const { return rounded8(_mm512_loadu_pd(weights), scale_); }

    __m512d scale_;
};

// Scaling by a power of two is exact in floats, too; their numerators are below 2^32.
template <>
class NarrowScale<float> {
public:
    SPSAMPLE_AVX512_MEMBER explicit NarrowScale(double scale)
        : exponent_(_mm512_set1_ps(static_cast<float>(static_cast<int>(double_bits(scale) >> 52) - 1023))) {}

    SPSAMPLE_AVX512_MEMBER __m512i numerators(const float* weights) const {
        return _mm512_cvt_roundps_epu32(_mm512_scalef_ps(_mm512_loadu_ps(weights), exponent_), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }

private:
    __m512 exponent_;
};

// Numerators of 16 weights of a wide row, as those of 8 pairs of neighbours: max(1, rint(w scale)) of a positive weight w, 0 for 0.
struct Pairs {
    __m512i first, second;
};

SPSAMPLE_AVX512_INLINE __m512i at_least_1(__m512i rounded, __mmask8 positive) {
    return _mm512_mask_max_epi64(rounded, positive, rounded, _mm512_set1_epi64(1));
}

template <class Real>
class WideScale;

template <>
class WideScale<double> {
public:
    SPSAMPLE_AVX512_MEMBER explicit WideScale(double scale) : scale_(_mm512_set1_pd(scale)) {}

    SPSAMPLE_AVX512_MEMBER Pairs numerators(const double* weights) const {
        const __m512d low = _mm512_loadu_pd(weights), high = _mm512_loadu_pd(weights + 8);
        const __m512i even = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0), odd = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
        return {numerators8(_mm512_permutex2var_pd(low, even, high)), numerators8(_mm512_permutex2var_pd(low, odd, high))};
    }

private:
    SPSAMPLE_AVX512_MEMBER __m512i numerators8(__m512d weights) const {
        return at_least_1(rounded8(weights, scale_), _mm512_cmpgt_epi64_mask(_mm512_castpd_si512(weights), _mm512_setzero_si512()));
    }

    __m512d scale_;
};

// Scaling by a power of two is exact in floats, too, but for numbers that are rounded to 0 either way.
template <>
class WideScale<float> {
public:
    SPSAMPLE_AVX512_MEMBER explicit WideScale(double scale)
        : exponent_(_mm512_set1_ps(static_cast<float>(static_cast<int>(double_bits(scale) >> 52) - 1023))) {}

    SPSAMPLE_AVX512_MEMBER Pairs numerators(const float* weights) const {
        const __m512i even_odd = _mm512_set_epi32(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0);
        const __m512 sorted = _mm512_permutexvar_ps(even_odd, _mm512_loadu_ps(weights));
        const __m512 scaled = _mm512_scalef_ps(sorted, exponent_);
        const uint32_t positive = _mm512_cmpgt_epi32_mask(_mm512_castps_si512(sorted), _mm512_setzero_si512());
        return {at_least_1(rounded8(_mm512_castps512_ps256(scaled)), static_cast<__mmask8>(positive)),
                at_least_1(rounded8(_mm512_extractf32x8_ps(scaled, 1)), static_cast<__mmask8>(positive >> 8))};
    }

private:
    SPSAMPLE_AVX512_MEMBER static __m512i rounded8(__m256 numbers) {
        return _mm512_cvt_roundps_epi64(numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }

    __m512 exponent_;
};

// Inclusive prefix sums within a register.
SPSAMPLE_AVX512_INLINE __m512i prefix_sums8(__m512i x) {
    const __m512i zero = _mm512_setzero_si512();
    x = _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 7));
    x = _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 6));
    return _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 4));
}

// What PlainSums of row_law_tree_loops.h does, but that a narrow sum of 2^32 may come out as 0.
struct Sums {
    template <bool Wide, class Real>
    SPSAMPLE_LOOP_LAMBDA static uint64_t write(const Real* weights, int64_t count, double scale, uint64_t sum, uint32_t* out) {
        return Wide ? wide(weights, count, scale, sum, out) : narrow(weights, count, scale, sum, out);
    }

    template <class Real>
    SPSAMPLE_LOOP_LAMBDA static uint64_t narrow(const Real* weights, int64_t count, double scale, uint64_t sum, uint32_t* out) {
        const NarrowScale<Real> scales(scale);
        __m512i before = _mm512_set1_epi32(static_cast<int>(sum));
        for (int64_t e = 0; e < count; e += kTreeLanes) {
            const __m512i sums = avx512::prefix_sums(scales.numerators(weights + e));
            _mm512_store_si512(out + e, _mm512_add_epi32(sums, before));
            before = _mm512_add_epi32(before, _mm512_permutexvar_epi32(_mm512_set1_epi32(15), sums));
        }
        const uint32_t low = out[count - 1];
        return sum + static_cast<uint32_t>(low - static_cast<uint32_t>(sum));
    }

    // The sum of each pair of neighbours is added up; the first of a pair has the sum up to its end less the second.
    template <class Real>
    SPSAMPLE_LOOP_LAMBDA static uint64_t wide(const Real* weights, int64_t count, double scale, uint64_t sum, uint32_t* out) {
        const WideScale<Real> scales(scale);
        const __m512i last = _mm512_set1_epi64(7);
        __m512i before = _mm512_set1_epi64(static_cast<int64_t>(sum));
        for (int64_t e = 0; e < count; e += kTreeLanes) {
            const Pairs numerators = scales.numerators(weights + e);
            const __m512i sums = prefix_sums8(_mm512_add_epi64(numerators.first, numerators.second));
            const __m512i second = _mm512_add_epi64(sums, before);
            const __m512i first = _mm512_sub_epi64(second, numerators.second);
            const __m512i cut_first = _mm512_srli_epi64(first, kWideCut), cut_second = _mm512_slli_epi64(second, 32 - kWideCut);
            _mm512_store_si512(out + e, _mm512_mask_mov_epi32(cut_first, avx512::kOddLanes, cut_second));
            before = _mm512_add_epi64(before, _mm512_permutexvar_epi64(last, sums));
        }
        return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(before)));
    }
};

}  // namespace kernel

#include "row_law_tree_loops.h"
#include "row_law_ranks_loops.h"

// What PlainUnits of row_law_tree_loops.h does.
struct Units {
    template <bool Wide>
    SPSAMPLE_AVX512_MEMBER static inline uint32_t write(const LaneWords* words, const LaneTotals& lanes, uint32_t* units) {
        if (!Wide) return narrow(_mm512_load_si512(words[0]), lanes, units);
        return wide8(words, lanes, 0, units) | wide8(words, lanes, 8, units) << 8;
    }

    SPSAMPLE_AVX512_MEMBER static inline uint32_t narrow(__m512i word, const LaneTotals& lanes, uint32_t* units) {
        const avx512::Words words = avx512::words_of(word);
        const __m512i totals = kernel::low_halves(_mm512_load_si512(lanes.totals), _mm512_load_si512(lanes.totals + 8));
        const avx512::Words by = avx512::words_of(totals);
        const avx512::Words products{_mm512_mul_epu32(words.even, by.even), _mm512_mul_epu32(words.odd, by.odd)};
        const __m512i below = kernel::low_halves(_mm512_load_si512(lanes.rejected_below), _mm512_load_si512(lanes.rejected_below + 8));
        _mm512_store_si512(units, _mm512_add_epi32(avx512::high_words(products), _mm512_set1_epi32(1)));
        return _mm512_cmplt_epu32_mask(avx512::low_words(products), below);
    }

    // Lanes from .. from + 7: the product of 64-bit numbers from those of their halves.
    SPSAMPLE_AVX512_MEMBER static inline uint32_t wide8(const LaneWords* words, const LaneTotals& lanes, int from, uint32_t* units) {
        const __m512i mask = _mm512_set1_epi64(0xFFFFFFFF);
        const __m512i a0 = half_of(words[0] + from), a1 = half_of(words[1] + from);
        const __m512i b0 = _mm512_load_si512(lanes.totals + from), b1 = _mm512_srli_epi64(b0, 32);
        const __m512i least = _mm512_mul_epu32(a0, b0);
        const __m512i middle = _mm512_add_epi64(_mm512_mul_epu32(a1, b0), _mm512_srli_epi64(least, 32));
        const __m512i carry = _mm512_add_epi64(_mm512_mul_epu32(a0, b1), _mm512_and_si512(middle, mask));
        const __m512i upper = _mm512_add_epi64(_mm512_srli_epi64(middle, 32), _mm512_srli_epi64(carry, 32));
        const __m512i high = _mm512_add_epi64(_mm512_mul_epu32(a1, b1), upper);
        const __m512i low = _mm512_add_epi64(_mm512_slli_epi64(carry, 32), _mm512_and_si512(least, mask));
        _mm256_store_si256(reinterpret_cast<__m256i*>(units + from), _mm512_cvtepi64_epi32(_mm512_srli_epi64(high, kWideCut)));
        return _mm512_cmplt_epu64_mask(low, _mm512_load_si512(lanes.rejected_below + from));
    }

    SPSAMPLE_AVX512_MEMBER static inline __m512i half_of(const uint32_t* words) {
        return _mm512_cvtepu32_epi64(_mm256_load_si256(reinterpret_cast<const __m256i*>(words)));
    }
};

template <class Real>
SPSAMPLE_AVX512 ExponentRange range(const Real* weights, int64_t count) {
    return range_loop(weights, count);
}

template <class Real>
SPSAMPLE_AVX512 uint64_t prefix_sums(
    const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums, const PrefetchRange& ahead) {
    return prefix_sums_loop<kernel::Sums>(weights, count, shift, level0, sums, ahead);
}

template <bool Wide>
SPSAMPLE_AVX512 void draw(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes) {
    draw_lanes_loop<Wide, Units>(how, trees, lanes);
}

SPSAMPLE_AVX512 void draw_ranked(const TreeDraw& how, const RankedLanes& rows, TreeLanes& lanes) {
    draw_ranked_loop<Units>(how, rows, lanes);
}

}  // namespace

const TreeSet kTreesAvx512{
    {range<float>, prefix_sums<float>}, {range<double>, prefix_sums<double>}, draw<false>, draw<true>, draw_ranked};

}  // namespace spsample

#endif
