// Dropout of many numbers, and the choice of instruction set at run time (as in simd.h). Equal bits on all of them.
#pragma once

#include <cstdint>

#include "spsample/philox.h"

namespace spsample {

constexpr int64_t kDropoutGroup = 64;  // numbers whose words come from sixteen counters

// Number i of group g = i div 64 has word (i mod 64) div 16 of Philox4x32-10 under the key, with counter (c, 0, 0), c = 16 g + i mod 16 of
// 64 bits. It is kept where its word is at least `least`, and times `scale` then.
struct DropoutRule {
    PhiloxKey key;
    RoundKeys keys;  // of `key`
    uint32_t least;
    float scale;
};

// out[i] of the numbers i in [begin, end) of x; `begin` is the first of a group.
using DropNumbers = void (*)(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);

void drop_numbers_portable(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);
void drop_numbers_avx2(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);
void drop_numbers_avx512(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);

// The same of max(x, 0), of NaN for NaN.
void drop_rectified_portable(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);
void drop_rectified_avx2(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);
void drop_rectified_avx512(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);

}  // namespace spsample
