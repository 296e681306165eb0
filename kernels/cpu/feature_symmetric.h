// Sums over the columns of a symmetric A, for the scores of vertices. Row v of it is column v: numbers are read, where sums over the columns
// of any A are written, entry by entry. Numbers need fewer bytes than sums, and no line goes back to memory.
//
// Whether A is symmetric need not be known. The product y = A x is made as if it were, and Freivalds' check (1977) compares g y, for a vector g
// of hashes, with (A g) x, which is g A^T x: for a wrong y they are equal once in about 2^60.
#pragma once

#include <cstring>

#include "spsample/views.h"

namespace spsample {

// A number of at least 0 for each vertex, in as few bytes as the largest needs: so more of them stay in a cache. An element past the last
// is 0, and eight bytes can be read at each.
struct PackedNumbers {
    const uint8_t* bytes;
    int64_t count;
    int width;  // bytes of a number, 1 to 8

    uint64_t mask() const { return ~uint64_t(0) >> (64 - 8 * width); }
    uint64_t operator[](int64_t v) const {
        uint64_t word;
        std::memcpy(&word, bytes + v * width, sizeof word);
        return word & mask();
    }
};

// g(v) of vertices below 2^32: a bijection of 32-bit words, times itself with some bits turned.
namespace vertex_hash {

constexpr uint32_t kTurned = 0x9E3779B9, kFactor = 0x846CA68B;

inline uint64_t of(uint32_t v) {
    v = (v ^ kTurned) * kFactor;
    v ^= v >> 15;
    return static_cast<uint64_t>(v) * (v ^ kTurned);
}

}  // namespace vertex_hash

// y[r] = the sum of the numbers of the columns of each row r in [begin, end); the difference that these rows make to g y - (A g) x, modulo
// 2^64, is added to `difference`. False where a column is outside of A.
bool add_columns_avx512(const CsrView<int32_t>& A, const PackedNumbers& x, int64_t begin, int64_t end, int64_t* y, uint64_t& difference);

}  // namespace spsample
