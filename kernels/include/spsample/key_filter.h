// A set of hashed keys as bits: a key that is absent is mostly told so by one bit of near memory.
#pragma once

#include "spsample/config.h"

namespace spsample {

// 2^(32 - shift) bits.
struct KeyFilter {
    uint32_t* words;
    int shift;

    static constexpr uint32_t kGolden = 0x9E3779B1u;

    // Fibonacci hashing of the low 32 bits: the number of the key's bit.
    SPSAMPLE_HD uint32_t bit(uint64_t key) const { return (static_cast<uint32_t>(key) * kGolden) >> shift; }
    // Not for threads beside each other.
    SPSAMPLE_HD void add(uint64_t key) { words[bit(key) >> 5] |= uint32_t(1) << (bit(key) & 31); }
    // 0: not a member; 1: perhaps one.
    SPSAMPLE_HD uint32_t test(uint64_t key) const { return (words[bit(key) >> 5] >> (bit(key) & 31)) & 1; }
};

}  // namespace spsample
