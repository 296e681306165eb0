// The rule of a row of weights, by a warp or a block (docs/law.md, section 2).
#pragma once

#include "row_law_weighted.h"

namespace spsample {

// Kept from call to call for each row of A: one of these, or 2 K, and 1 more where the row has a weight of 0.
constexpr int kUnknownRule = -32768;  // as spsample.backends.protocol.UNKNOWN_RULE
constexpr int kNoPositive = -32767;

// A weight above 0 as bits, which order as weights do; else 0.
__device__ inline uint32_t positive_bits(float w) { return is_positive(w) ? float_bits(w) : 0; }
__device__ inline uint64_t positive_bits(double w) { return is_positive(w) ? double_bits(w) : 0; }
__device__ inline int32_t exponent_of(uint32_t bits) { return decompose_bits(bits, 23, 126).exponent; }
__device__ inline int32_t exponent_of(uint64_t bits) { return decompose_bits(bits, 52, 1022).exponent; }
using Bits = decltype(positive_bits(Real()));

// The rule of a row, and how many positive entries it has. Reads the row once, or twice where its exponents do not tell.
template <class Team>
__device__ int find_rule(const Team& team, const Real* weights, int64_t degree, int64_t* positive) {
    Bits largest = 0, smallest_less_one = ~Bits(0);
    uint64_t count = 0;
#pragma unroll 4
    for (int64_t entry = team.thread(); entry < degree; entry += Team::kThreads) {
        const Bits bits = positive_bits(weights[entry]);
        largest = bits > largest ? bits : largest;
        smallest_less_one = bits - 1 < smallest_less_one ? bits - 1 : smallest_less_one;
        count += bits > 0 ? 1 : 0;
    }
    *positive = static_cast<int64_t>(team.reduce(count, Sum()));
    largest = static_cast<Bits>(team.reduce(largest, Largest()));
    smallest_less_one = static_cast<Bits>(team.reduce(smallest_less_one, Smallest()));
    if (*positive == 0) return kNoPositive;
    const ExponentRange range = {exponent_of(largest), exponent_of(static_cast<Bits>(smallest_less_one + 1)), *positive};
    const int64_t narrow = narrow_shift(range);
    bool is_narrow = is_precise(range, narrow);
    if (!is_narrow) {
        bool is_rounded = false;
        for (int64_t entry = team.thread(); entry < degree && !is_rounded; entry += Team::kThreads) {
            is_rounded = is_positive(weights[entry]) && !scaled_is_integer(weights[entry], narrow);
        }
        is_narrow = team.reduce(is_rounded ? 1 : 0, Sum()) == 0;
    }
    const int64_t shift = is_narrow ? narrow : narrow + kWideGain;
    return static_cast<int>(2 * shift + (*positive < degree ? 1 : 0));
}

}  // namespace spsample
