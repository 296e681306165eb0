// Trees of weights in AVX-512 (simd_avx512.cpp says how such a file is compiled).
#include <algorithm>
#include <limits>

#include "simd.h"
#include "weight_tree.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

#define SPSAMPLE_LOOP SPSAMPLE_AVX512_INLINE
#define SPSAMPLE_LOOP_MEMBER SPSAMPLE_LOOP_LAMBDA inline
#define SPSAMPLE_LOOP_LAMBDA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,lzcnt,popcnt"), always_inline))

namespace kernel {

constexpr int kVectorBytes = 64;

SPSAMPLE_AVX512_INLINE uint32_t count_below(const uint32_t* block, uint32_t y) {
    const __m512i elements = _mm512_load_si512(block);
    return static_cast<uint32_t>(__builtin_popcount(_mm512_cmplt_epu32_mask(elements, _mm512_set1_epi32(static_cast<int>(y)))));
}

// Whether `position` is among the first `count` positions; 16 may be read at a time, whatever lies behind them.
SPSAMPLE_AVX512_INLINE bool is_among(const uint32_t* positions, int count, uint32_t position) {
    const __m512i wanted = _mm512_set1_epi32(static_cast<int>(position));
    uint32_t found = 0;
    for (int first = 0; first < count; first += kTreeLanes) {
        const uint32_t here = _bzhi_u32(0xFFFF, static_cast<uint32_t>(count - first));
        found |= _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(positions + first), wanted) & here;
    }
    return found != 0;
}

// Compares each of the first 16 draws with those before it in a register; draws beyond count as repeats, to be looked at one by one.
struct Repeats {
    __m512i before;
    __mmask16 equal = 0;
    bool more = false;

    SPSAMPLE_LOOP_LAMBDA Repeats() : before(_mm512_set1_epi32(-1)) {}  // no position is 2^32 - 1

    SPSAMPLE_LOOP_LAMBDA void add(const uint32_t* positions, int draw) {
        const __m512i position = _mm512_set1_epi32(static_cast<int>(positions[draw]));
        equal |= _mm512_cmpeq_epi32_mask(before, position);
        before = _mm512_mask_mov_epi32(before, static_cast<__mmask16>(uint64_t(1) << draw), position);
        more |= draw >= kTreeLanes;
    }
    SPSAMPLE_LOOP_LAMBDA bool any() const { return more || equal != 0; }

    // Keeps the first of equal positions; returns how many there are. Writes 16 at a time.
    SPSAMPLE_LOOP_LAMBDA int keep_first(uint32_t* positions, int size) const {
        uint32_t kept = 1;
        const int in_register = std::min(size, kTreeLanes);
        for (int draw = 1; draw < in_register; ++draw) {
            const __m512i position = _mm512_set1_epi32(static_cast<int>(positions[draw]));
            const uint32_t same = _mm512_cmpeq_epi32_mask(before, position) & ((1u << draw) - 1);
            kept |= uint32_t(same == 0) << draw;
        }
        int count = __builtin_popcount(kept);
        _mm512_storeu_si512(positions, _mm512_maskz_compress_epi32(static_cast<__mmask16>(kept), before));
        for (int draw = in_register; draw < size; ++draw) {
            const uint32_t position = positions[draw];
            positions[count] = position;
            count += is_among(positions, count, position) ? 0 : 1;
        }
        return count;
    }
};

SPSAMPLE_AVX512_INLINE void philox_block(const TreeDraw& how, const TreeLanes& lanes, int number, uint32_t (*words)[kTreeLanes]) {
    const __m512i c0 = _mm512_load_si512(lanes.vertex_low);
    const __m512i c1 = _mm512_or_si512(_mm512_load_si512(lanes.vertex_high), _mm512_set1_epi32(static_cast<int>(how.hop << 16)));
    const avx512::Words drawn = avx512::philox({{c0, c1, _mm512_set1_epi32(number), _mm512_load_si512(lanes.batch_id)}}, how.key);
    for (int i = 0; i < 4; ++i) _mm512_store_si512(words[i], drawn.w[i]);
}

// Eight weights as doubles.
SPSAMPLE_AVX512_INLINE __m512d load8(const float* weights) { return _mm512_cvtps_pd(_mm256_loadu_ps(weights)); }
SPSAMPLE_AVX512_INLINE __m512d load8(const double* weights) { return _mm512_loadu_pd(weights); }

// max(1, rint(w scale)) of eight positive weights w, 0 for 0.
SPSAMPLE_AVX512_INLINE __m512i numerators8(__m512d weights, __m512d scale) {
    const __m512i rounded = _mm512_cvt_roundpd_epi64(_mm512_mul_pd(weights, scale), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __mmask8 positive = _mm512_cmpgt_epi64_mask(_mm512_castpd_si512(weights), _mm512_setzero_si512());
    return _mm512_mask_max_epi64(rounded, positive, rounded, _mm512_set1_epi64(1));
}

// The low halves of 16 integers.
SPSAMPLE_AVX512_INLINE __m512i low_halves(__m512i first, __m512i second) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi32(first, even, second);
}

// Inclusive prefix sums within a register.
SPSAMPLE_AVX512_INLINE __m512i prefix_sums8(__m512i x) {
    const __m512i zero = _mm512_setzero_si512();
    x = _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 7));
    x = _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 6));
    return _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 4));
}
SPSAMPLE_AVX512_INLINE __m512i prefix_sums16(__m512i x) {
    const __m512i zero = _mm512_setzero_si512();
    x = _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 15));
    x = _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 14));
    x = _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 12));
    return _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 8));
}

// What PlainSums of tree_loops.h does, but that a narrow sum of 2^32 may come out as 0.
struct Sums {
    template <bool Wide, class Real>
    SPSAMPLE_LOOP_LAMBDA static uint64_t write(const Real* weights, int64_t count, double scale, uint64_t sum, uint32_t* out) {
        return Wide ? wide(weights, count, scale, sum, out) : narrow(weights, count, scale, sum, out);
    }

    template <class Real>
    SPSAMPLE_LOOP_LAMBDA static uint64_t narrow(const Real* weights, int64_t count, double scale, uint64_t sum, uint32_t* out) {
        const __m512d scales = _mm512_set1_pd(scale);
        __m512i before = _mm512_set1_epi32(static_cast<int>(sum));
        for (int64_t e = 0; e < count; e += kTreeLanes) {
            const __m512i first = numerators8(load8(weights + e), scales), second = numerators8(load8(weights + e + 8), scales);
            const __m512i sums = prefix_sums16(low_halves(first, second));
            _mm512_store_si512(out + e, _mm512_add_epi32(sums, before));
            before = _mm512_add_epi32(before, _mm512_permutexvar_epi32(_mm512_set1_epi32(15), sums));
        }
        const uint32_t low = out[count - 1];
        return sum + static_cast<uint32_t>(low - static_cast<uint32_t>(sum));
    }

    template <class Real>
    SPSAMPLE_LOOP_LAMBDA static uint64_t wide(const Real* weights, int64_t count, double scale, uint64_t sum, uint32_t* out) {
        const __m512d scales = _mm512_set1_pd(scale);
        const __m512i last = _mm512_set1_epi64(7);
        __m512i before = _mm512_set1_epi64(static_cast<int64_t>(sum));
        for (int64_t e = 0; e < count; e += kTreeLanes) {
            const __m512i first = prefix_sums8(numerators8(load8(weights + e), scales));
            __m512i second = prefix_sums8(numerators8(load8(weights + e + 8), scales));
            second = _mm512_add_epi64(second, _mm512_permutexvar_epi64(last, first));
            const __m512i cut_first = _mm512_srli_epi64(_mm512_add_epi64(first, before), kWideCut);
            const __m512i cut_second = _mm512_srli_epi64(_mm512_add_epi64(second, before), kWideCut);
            _mm512_store_si512(out + e, low_halves(cut_first, cut_second));
            before = _mm512_add_epi64(before, _mm512_permutexvar_epi64(last, second));
        }
        return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(before)));
    }
};

}  // namespace kernel

#include "tree_loops.h"

template <class Real>
SPSAMPLE_AVX512 ExponentRange range(const Real* weights, int64_t count) {
    return range_loop(weights, count);
}

template <class Real>
SPSAMPLE_AVX512 uint64_t prefix_sums(const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums) {
    return prefix_sums_loop<kernel::Sums>(weights, count, shift, level0, sums);
}

template <bool Wide>
SPSAMPLE_AVX512 void draw(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes) {
    draw_lanes_loop<Wide>(how, trees, lanes);
}

}  // namespace

const TreeSet kTreesAvx512{
    {range<float>, prefix_sums<float>}, {range<double>, prefix_sums<double>}, draw<false>, draw<true>};

}  // namespace spsample

#endif
