// Edges on their way into a store: records of a few bytes, grouped into buckets of (target, source).
//
// The head of a record is one little-endian integer of 4 to 12 bytes: key << position_bits | position. The key is
// (target - first target of the bucket) << source_bits | source, of at most 64 bits; the position counts from the first edge of
// the chunk that the record came with. A weight of 0, 4 or 8 bytes follows.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace spsample {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are little-endian");

__extension__ typedef unsigned __int128 uint128_t;

template <int Bytes>
struct Head {
    using Word = std::conditional_t<(Bytes <= 8), uint64_t, uint128_t>;
    static constexpr int bytes = Bytes;

    static Word load(const uint8_t* from) {
        Word word = 0;
        std::memcpy(&word, from, Bytes);
        return word;
    }
    static void store(uint8_t* to, Word word) { std::memcpy(to, &word, Bytes); }
};

// Calls body(Head<bytes>{}).
template <class Body>
decltype(auto) with_head(int bytes, Body&& body) {
    switch (bytes) {
        case 4: return body(Head<4>{});
        case 5: return body(Head<5>{});
        case 6: return body(Head<6>{});
        case 7: return body(Head<7>{});
        case 8: return body(Head<8>{});
        case 9: return body(Head<9>{});
        case 10: return body(Head<10>{});
        case 11: return body(Head<11>{});
        case 12: return body(Head<12>{});
        default: throw std::invalid_argument("head_bytes: must be from 4 to 12");
    }
}

inline uint64_t low_bits(int bits) { return bits >= 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1; }

}  // namespace spsample
