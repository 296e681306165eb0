// Numerators of many weights at once (docs/law.md, section 2): those of quantize(), by loops that compilers turn into vector code.
//
// Almost all numerators are below 2^52: there the law's steps are one product w * w and one rounding, which binary64 does as the
// law says, for every scaling by a power of two is exact. To be called in the default floating-point environment.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "spsample/quantisation.h"

namespace spsample {

constexpr int64_t kQuantizeChunk = 128;  // weights at a time: numerators stay in the first-level cache
constexpr int64_t kMostScale = 600;      // |shift| up to which a product that underflows has the numerator 1 in any case

// N(w) = w > 0 ? rint(max(1, w^power scale)) : 0 into numerators[0 .. count - 1], where that is below 2^52 for all; else false.
template <class Real>
bool quantize_small(const Real* weights, int64_t count, double scale, int32_t power, uint64_t* numerators) {
    constexpr double kUnits = 4503599627370496.0;  // 2^52: from here on a double's last bit is a unit
    const uint64_t origin = double_bits(kUnits);
    uint64_t all = 0;
    for (int64_t j = 0; j < count; ++j) {
        const double w = static_cast<double>(weights[j]);
        const double scaled = (power == 2 ? w * w : w) * scale;
        const uint64_t rounded = double_bits(kUnits + (scaled > 1.0 ? scaled : 1.0)) - origin;
        numerators[j] = w > 0.0 ? rounded : 0;
        all |= rounded;
    }
    return all < (uint64_t(1) << 52);
}

// quantize(w, shift, power) of `count` finite weights w >= 0. O(count).
template <class Real>
void quantize_many(const Real* weights, int64_t count, int64_t shift, int32_t power, uint64_t* numerators) {
    if (-kMostScale <= shift && shift <= kMostScale) {
        const double scale = std::ldexp(1.0, static_cast<int>(shift));
        if (quantize_small(weights, count, scale, power, numerators)) return;
    }
    for (int64_t j = 0; j < count; ++j) numerators[j] = quantize(weights[j], shift, power);
}

// Calls body(position, numerator) for weights[begin] .. weights[end - 1] in order.
template <class Real, class Body>
void for_each_quantized(const Real* weights, int64_t begin, int64_t end, int64_t shift, int32_t power, Body&& body) {
    uint64_t numerators[kQuantizeChunk];
    for (int64_t first = begin; first < end; first += kQuantizeChunk) {
        const int64_t count = std::min(kQuantizeChunk, end - first);
        quantize_many(weights + first, count, shift, power, numerators);
        for (int64_t j = 0; j < count; ++j) body(first + j, numerators[j]);
    }
}

}  // namespace spsample
