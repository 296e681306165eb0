// What a stored number of a feature row is as float: equal bits on the host and on a device.
#pragma once

#include "spsample/config.h"

#if !defined(__CUDACC_RTC__)
#include <cstring>
#endif

namespace spsample {

SPSAMPLE_HD inline float float_from_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
#endif
}

// Functors of (stored number, its column).

// A number of any type, rounded to nearest where float does not hold it.
struct FromNumber {
    template <class Stored>
    SPSAMPLE_HD float operator()(Stored x, int64_t) const {
        return static_cast<float>(x);
    }
};

// IEEE 754 binary16, exactly: every value is one of float's. A signalling NaN becomes a quiet one, as processors have it.
struct FromHalf {
    SPSAMPLE_HD float operator()(uint16_t half, int64_t) const {
        const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, exponent = (half >> 10) & 31u;
        uint32_t fraction = half & 0x3FFu;
        if (exponent == 31) return float_from_bits(sign | 0x7F800000u | (fraction ? 0x400000u | fraction << 13 : 0));
        if (exponent != 0) return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
        if (fraction == 0) return float_from_bits(sign);
        uint32_t shift = 0;
        for (; (fraction & 0x400u) == 0; fraction <<= 1) ++shift;
        return float_from_bits(sign | (113 - shift) << 23 | (fraction & 0x3FFu) << 13);
    }
};

// The upper half of a float.
struct FromBFloat {
    SPSAMPLE_HD float operator()(uint16_t upper, int64_t) const { return float_from_bits(static_cast<uint32_t>(upper) << 16); }
};

// An integer times the scale of its column.
struct FromInt8 {
    const float* scale;
    SPSAMPLE_HD float operator()(int8_t x, int64_t column) const { return static_cast<float>(x) * scale[column]; }
};

}  // namespace spsample
