// Dropout of many numbers, and the choice of instruction set at run time (as in simd.h). Equal bits on all of them.
#pragma once

#include <cstdint>

#include "spsample/philox.h"

namespace spsample {

constexpr int64_t kDropoutGroup = 128;  // numbers whose halves of words come from sixteen counters

// Number i of group g = i div 128 has 32 random bits. The upper 16 are one half of word (i mod 128) div 32 of Philox4x32-10 under the key,
// with counter (c, 0, 0), c = 16 g + i mod 16 of 64 bits: the lower half where i div 16 is even, else the upper one. The lower 16 are the
// same half of the same word with counter (c, 1, 0); they are looked at only where the upper ones are those of `least`, one time in 65,536.
// The number is kept where its bits are at least `least`, and times `scale` then.
struct DropoutRule {
    PhiloxKey key;
    RoundKeys keys;  // of `key`
    uint32_t least;
    float scale;

    uint32_t least_upper() const { return least & 0xFFFF0000; }
    bool upper_bits_decide() const { return (least & 0xFFFF) == 0; }
};

// out[i] of the numbers i in [begin, end) of x, which is not `out`; `begin` is the first of a group.
using DropNumbers = void (*)(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);

void drop_numbers_portable(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);
void drop_numbers_avx2(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);
void drop_numbers_avx512(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);

// The same of max(x, 0), of NaN for NaN.
void drop_rectified_portable(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);
void drop_rectified_avx2(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);
void drop_rectified_avx512(const DropoutRule& rule, const float* x, int64_t begin, int64_t end, float* out);

}  // namespace spsample
