// Random bits (docs/law.md, section 1): Philox4x32-10, the counter's fields, and integers in [0, t) by draw number.
// Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC'11; Lemire, Fast random integer generation
// in an interval, 2019.
#pragma once

#include "spsample/config.h"

namespace spsample {

struct PhiloxKey {
    uint32_t word0;
    uint32_t word1;
};

struct PhiloxWords {
    uint32_t w[4];
};

// Word i of four. On the device by selection: an array that is indexed at run time would lie in memory.
SPSAMPLE_HD inline uint32_t word_of(const PhiloxWords& words, int i) {
#if defined(__CUDA_ARCH__)
    const uint32_t low = (i & 1) != 0 ? words.w[1] : words.w[0], high = (i & 1) != 0 ? words.w[3] : words.w[2];
    return (i & 2) != 0 ? high : low;
#else
    return words.w[i];
#endif
}

constexpr int kPhiloxRounds = 10;

SPSAMPLE_HD inline PhiloxKey next_round_key(PhiloxKey key) { return {key.word0 + 0x9E3779B9u, key.word1 + 0xBB67AE85u}; }

// The keys of all rounds: what vector code broadcasts from memory takes less time than what it computes.
struct RoundKeys {
    PhiloxKey round[kPhiloxRounds];

    explicit RoundKeys(PhiloxKey key) {
        for (PhiloxKey& of_round : round) {
            of_round = key;
            key = next_round_key(key);
        }
    }
};

// Known answers: tests/unit/test_cpu_kernels_random.py.
SPSAMPLE_HD inline PhiloxWords philox4x32_10(PhiloxWords c, PhiloxKey key) {
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const uint64_t product0 = uint64_t(0xD2511F53) * c.w[0];
        const uint64_t product1 = uint64_t(0xCD9E8D57) * c.w[2];
        c = {{static_cast<uint32_t>(product1 >> 32) ^ c.w[1] ^ key.word0, static_cast<uint32_t>(product1),
              static_cast<uint32_t>(product0 >> 32) ^ c.w[3] ^ key.word1, static_cast<uint32_t>(product0)}};
        key = next_round_key(key);
    }
    return c;
}

// What rounds 1 and 2 make of a block's number and of c1, where all lanes have the same: constants that enter the words of the third
// round's counters and of its outcome by exclusive or (kernels/cpu/philox_lanes.h).
struct BlockStart {
    uint32_t word0;
    uint32_t word2;
    uint32_t word3;  // of the outcome, with the third round's key
};

SPSAMPLE_HD inline BlockStart block_start(uint32_t number, uint32_t c1, const RoundKeys& keys) {
    const uint64_t product1 = uint64_t(0xCD9E8D57) * number;
    const uint32_t c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ keys.round[0].word0;
    const uint64_t product0 = uint64_t(0xD2511F53) * c0;
    return {
        static_cast<uint32_t>(product1) ^ keys.round[1].word0, static_cast<uint32_t>(product0 >> 32) ^ keys.round[1].word1,
        static_cast<uint32_t>(product0) ^ keys.round[2].word1};
}

SPSAMPLE_HD inline uint64_t wide_word(uint32_t low, uint32_t high) { return low + (uint64_t(high) << 32); }

// High 64 bits of a * b; the low ones are the ordinary product.
SPSAMPLE_HD inline uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
    return __umul64hi(a, b);
#else
    const uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + ((a0 * b0) >> 32);
    const uint64_t carry = a0 * b1 + (middle & 0xFFFFFFFFu);
    return a1 * b1 + (middle >> 32) + (carry >> 32);
#endif
}

// Totals up to this one use 32-bit words.
constexpr uint64_t kNarrowLimit = uint64_t(1) << 32;
constexpr uint32_t kLastAttempt = 255;

// Draws of a round for each outcome that is wanted, before the chosen ones are taken out (law, section 3); ROUND_DRAWS in Python.
constexpr int kRoundDraws = 4;

// The draws 0, 1, 2, ... of one row, or of one batch and layer (vertex 0). Draws may be asked for in any order; asked
// for in ascending order, one block of bits is computed for 4 narrow or 2 wide draws.
class DrawStream {
public:
    // The width holds for all draws of the stream: wide exactly where `initial_total` exceeds 2^32.
    SPSAMPLE_HD DrawStream(PhiloxKey key, uint64_t vertex, uint32_t hop, int64_t batch_id, uint64_t initial_total)
        : key_(key),
          vertex_low_(static_cast<uint32_t>(vertex)),
          vertex_high_and_hop_((static_cast<uint32_t>(vertex >> 32) & 0xFFFFu) | ((hop & 0xFFu) << 16)),
          batch_id_(static_cast<uint32_t>(batch_id)),
          wide_(initial_total > kNarrowLimit) {}

    // Draw numbers are below this: a block of bits has a 32-bit number, and 4 narrow or 2 wide draws.
    SPSAMPLE_HD int64_t count() const { return int64_t(wide_ ? 2 : 4) << 32; }

    // Integer in [0, t) from a draw, 0 < t <= the initial total.
    SPSAMPLE_HD uint64_t below(int64_t draw, uint64_t t) { return wide_ ? below_wide(draw, t) : below_narrow(draw, t); }

    // Words are rejected whose product with t has lower low bits than this.
    SPSAMPLE_HD uint64_t rejected_below(uint64_t t) const { return wide_ ? (uint64_t(0) - t) % t : kNarrowLimit % t; }

    // The same integer where rejected_below(t) is known. Threads that make narrow and wide draws at a time compute their bits together.
    SPSAMPLE_HD uint64_t below(int64_t draw, uint64_t t, uint64_t rejected_below) const {
        const int position = static_cast<int>(wide_ ? 2 * (draw & 1) : draw & 3);
        for (uint32_t attempt = 0;; ++attempt) {
            const PhiloxWords words = block(draw >> (wide_ ? 1 : 2), attempt);
            const uint32_t first = word_of(words, position);
            const uint64_t word = wide_ ? wide_word(first, word_of(words, position | 1)) : first;
            const uint64_t product = word * t, low = wide_ ? product : static_cast<uint32_t>(product);
            if (low >= rejected_below || attempt == kLastAttempt) return wide_ ? multiply_high(word, t) : product >> 32;
        }
    }

    // The same for a caller that asks for one draw: no bits are kept for others, and the code computes a block at one place.
    SPSAMPLE_HD uint64_t one_below(int64_t draw, uint64_t t) const {
        for (uint32_t attempt = 0;; ++attempt) {
            const PhiloxWords words = block(draw >> (wide_ ? 1 : 2), attempt);
            const bool is_last = attempt == kLastAttempt;
            if (wide_) {
                const int position = 2 * static_cast<int>(draw & 1);
                const uint64_t word = wide_word(word_of(words, position), word_of(words, position + 1));
                if (word * t >= t || is_last || word * t >= (uint64_t(0) - t) % t) return multiply_high(word, t);
            } else {
                const uint64_t product = word_of(words, static_cast<int>(draw & 3)) * t;
                const uint32_t low = static_cast<uint32_t>(product);
                const uint32_t narrow = static_cast<uint32_t>(t);  // 0 is 2^32, which takes every word
                if (low >= t || is_last || narrow == 0 || low >= (0u - narrow) % narrow) return product >> 32;
            }
        }
    }

private:
    SPSAMPLE_HD PhiloxWords block(int64_t number, uint32_t attempt) const {
        return philox4x32_10(
            {{vertex_low_, vertex_high_and_hop_ | (attempt << 24), static_cast<uint32_t>(number), batch_id_}}, key_);
    }

    SPSAMPLE_HD const PhiloxWords& first_attempt(int64_t number) {
        if (number != cached_number_) {
            cached_ = block(number, 0);
            cached_number_ = number;
        }
        return cached_;
    }

    SPSAMPLE_HD uint64_t below_narrow(int64_t draw, uint64_t t) {
        const int position = static_cast<int>(draw & 3);
        uint64_t product = word_of(first_attempt(draw >> 2), position) * t;
        if (static_cast<uint32_t>(product) < t) {
            const uint64_t rejected_below = kNarrowLimit % t;
            for (uint32_t attempt = 1; static_cast<uint32_t>(product) < rejected_below && attempt <= kLastAttempt; ++attempt) {
                product = word_of(block(draw >> 2, attempt), position) * t;
            }
        }
        return product >> 32;
    }

    SPSAMPLE_HD uint64_t below_wide(int64_t draw, uint64_t t) {
        const int position = 2 * static_cast<int>(draw & 1);
        const PhiloxWords& words = first_attempt(draw >> 1);
        uint64_t word = wide_word(word_of(words, position), word_of(words, position + 1));
        if (word * t < t) {
            const uint64_t rejected_below = (uint64_t(0) - t) % t;
            for (uint32_t attempt = 1; word * t < rejected_below && attempt <= kLastAttempt; ++attempt) {
                const PhiloxWords again = block(draw >> 1, attempt);
                word = wide_word(word_of(again, position), word_of(again, position + 1));
            }
        }
        return multiply_high(word, t);
    }

    PhiloxKey key_;
    uint32_t vertex_low_;
    uint32_t vertex_high_and_hop_;
    uint32_t batch_id_;
    bool wide_;
    int64_t cached_number_ = -1;
    PhiloxWords cached_ = {{0, 0, 0, 0}};
};

}  // namespace spsample
