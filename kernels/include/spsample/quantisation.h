// From weights to integer numerators (docs/law.md, section 2). For host and device.
//
// A positive weight w = m 2^e (1/2 <= m < 1, as frexp) becomes N(w) = max(1, rint(m^a 2^(a e + K))), a = 1 or 2.
// All steps but the one product m * m are integer arithmetic on the bits of the weight, so that every compiler, device and
// floating-point environment (one that flushes subnormal numbers to zero, too) gives the same bits.
// Complexity: O(1) per weight; the row rule reads a row two times at most.
#pragma once

#include "spsample/config.h"

#if !defined(__CUDACC_RTC__)
#include <cstring>
#endif

namespace spsample {

// How many bits numerators have: those of a row or of a frontier add up to at most 2^kNarrowBits or 2^kWideBits. In Python they
// are NARROW_BITS, WIDE_BITS and PRECISE_BITS (spsample/backends/reference/quantisation.py).
constexpr int64_t kNarrowBits = 32;
constexpr int64_t kWideBits = 62;
constexpr int64_t kPreciseBits = 11;  // a row is narrow where its numerators are then at least 2^kPreciseBits, or exact

// w = significand * 2^(exponent - 53) with 2^52 <= significand < 2^53, that is m = significand * 2^-53.
struct Decomposed {
    uint64_t significand;
    int32_t exponent;
};

SPSAMPLE_HD inline uint64_t double_bits(double x) {
#if defined(__CUDA_ARCH__)
    return static_cast<uint64_t>(__double_as_longlong(x));
#else
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
#endif
}

SPSAMPLE_HD inline uint32_t float_bits(float x) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(x);
#else
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
#endif
}

SPSAMPLE_HD inline double double_from_bits(uint64_t bits) {
#if defined(__CUDA_ARCH__)
    return __longlong_as_double(static_cast<long long>(bits));
#else
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
#endif
}

// Bit length of x - 1: the smallest b with 2^b >= x, for x >= 1. 0 for x = 0 too.
SPSAMPLE_HD inline int32_t ceil_log2(uint64_t x) {
    if (x <= 1) {
        return 0;
    }
    uint64_t rest = x - 1;
    int32_t bits = 1;
    for (int32_t step = 32; step > 0; step >>= 1) {
        if ((rest >> step) != 0) {
            rest >>= step;
            bits += step;
        }
    }
    return bits;
}

// Whether a finite weight is above 0. A comparison would take subnormal numbers for 0 where they are flushed.
SPSAMPLE_HD inline bool is_positive(double w) { return static_cast<int64_t>(double_bits(w)) > 0; }
SPSAMPLE_HD inline bool is_positive(float w) { return static_cast<int32_t>(float_bits(w)) > 0; }

// frexp from the bits of a finite w > 0, subnormal numbers too. bias: that of w's type less 1, as m < 1.
SPSAMPLE_HD inline Decomposed decompose_bits(uint64_t bits, int32_t fraction_bits, int32_t bias) {
    const uint64_t implicit = uint64_t(1) << fraction_bits;
    const uint64_t fraction = bits & (implicit - 1);
    const int32_t biased = static_cast<int32_t>(bits >> fraction_bits);
    if (biased == 0) {
        const int32_t length = ceil_log2(fraction + 1);  // bit length of the fraction
        return {fraction << (53 - length), length - bias - fraction_bits};
    }
    return {(fraction | implicit) << (52 - fraction_bits), biased - bias};
}

SPSAMPLE_HD inline Decomposed decompose(double w) { return decompose_bits(double_bits(w), 52, 1022); }
SPSAMPLE_HD inline Decomposed decompose(float w) { return decompose_bits(float_bits(w), 23, 126); }

// The mantissa m in [1/2, 1) as a double.
SPSAMPLE_HD inline double mantissa(Decomposed w) {
    const uint64_t fraction_mask = (uint64_t(1) << 52) - 1;
    return double_from_bits((uint64_t(1022) << 52) | (w.significand & fraction_mask));
}

// max(1, rint(significand 2^shift)), half to even. The laws keep the result <= 2^kWideBits; beyond 2^63 it saturates.
SPSAMPLE_HD inline uint64_t round_scaled(uint64_t significand, int64_t shift) {
    if (shift >= 0) {
        return shift <= 10 ? significand << shift : uint64_t(1) << 63;
    }
    if (shift < -54) {
        return 1;
    }
    const int32_t drop = static_cast<int32_t>(-shift);
    const uint64_t floor = significand >> drop;
    const uint64_t rest = significand & ((uint64_t(1) << drop) - 1);
    const uint64_t half = uint64_t(1) << (drop - 1);
    const bool up = rest > half || (rest == half && (floor & 1) != 0);
    const uint64_t rounded = floor + (up ? 1 : 0);
    return rounded == 0 ? 1 : rounded;
}

// N(w) of a finite weight w >= 0 under exponent K = shift and entry power a = power (1 or 2); 0 for w = 0.
// Real: float or double, here and below.
template <class Real>
SPSAMPLE_HD inline uint64_t quantize(Real w, int64_t shift, int32_t power) {
    if (!is_positive(w)) {
        return 0;
    }
    const Decomposed x = decompose(w);
    if (power == 1) {
        return round_scaled(x.significand, x.exponent + shift - 53);
    }
    const double m = mantissa(x);
    const Decomposed square = decompose(m * m);
    return round_scaled(square.significand, square.exponent + 2 * int64_t(x.exponent) + shift - 53);
}

// The exponent of a row without positive entries (as spsample.backends.protocol.NO_EXPONENT).
constexpr int32_t kNoExponent = -2147483647 - 1;

// Largest and smallest binary exponent of a row's positive entries, and how many there are.
struct ExponentRange {
    int32_t largest;
    int32_t smallest;
    int64_t positive;
};

// weights: count elements, finite and >= 0.
template <class Real>
SPSAMPLE_HD inline ExponentRange exponent_range(const Real* weights, int64_t count) {
    ExponentRange range = {kNoExponent, 2147483647, 0};
    for (int64_t j = 0; j < count; ++j) {
        if (!is_positive(weights[j])) {
            continue;
        }
        const int32_t e = decompose(weights[j]).exponent;
        range.largest = e > range.largest ? e : range.largest;
        range.smallest = e < range.smallest ? e : range.smallest;
        range.positive += 1;
    }
    return range;
}

// Whether 2^shift w is an integer, for a finite w > 0 and any shift; no rounding, no underflow.
template <class Real>
SPSAMPLE_HD inline bool scaled_is_integer(Real w, int64_t shift) {
    const Decomposed x = decompose(w);
    const int64_t integer_bits = x.exponent + shift;  // 2^shift w < 2^integer_bits
    if (integer_bits <= 0) {
        return false;
    }
    if (integer_bits >= 53) {
        return true;
    }
    return (x.significand & ((uint64_t(1) << (53 - integer_bits)) - 1)) == 0;
}

// The row rule's narrow K, of a row with positive entries; the wide one is kWideGain more.
SPSAMPLE_HD inline int64_t narrow_shift(const ExponentRange& range) {
    return kNarrowBits - int64_t(range.largest) - ceil_log2(static_cast<uint64_t>(range.positive));
}
constexpr int64_t kWideGain = kWideBits - kNarrowBits;

// Whether the exponents alone say that every numerator of a row is at least 2^kPreciseBits under K = shift:
// 2^shift w >= 2^(smallest - 1 + shift).
SPSAMPLE_HD inline bool is_precise(const ExponentRange& range, int64_t shift) {
    return range.smallest - 1 + shift >= kPreciseBits;
}

// The row rule's exponent K, for the whole row (section 2): narrow where every numerator is then at least
// 2^kPreciseBits or exact, else wide. 0 for a row without positive entries, which has T = 0. range: that of the row's exponents.
template <class Real>
SPSAMPLE_HD inline int64_t row_shift(const Real* weights, int64_t count, const ExponentRange& range) {
    if (range.positive == 0) {
        return 0;
    }
    const int64_t narrow = narrow_shift(range);
    if (is_precise(range, narrow)) {
        return narrow;
    }
    for (int64_t j = 0; j < count; ++j) {
        if (is_positive(weights[j]) && !scaled_is_integer(weights[j], narrow)) {
            return narrow + kWideGain;
        }
    }
    return narrow;
}

template <class Real>
SPSAMPLE_HD inline int64_t row_shift(const Real* weights, int64_t count) {
    return row_shift(weights, count, exponent_range(weights, count));
}

// Whether the row rule chose K = shift as that of a wide row.
SPSAMPLE_HD inline bool is_wide(const ExponentRange& range, int64_t shift) {
    return shift + range.largest + ceil_log2(static_cast<uint64_t>(range.positive)) == kWideBits;
}

}  // namespace spsample
