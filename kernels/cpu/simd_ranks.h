// Loops over bit sets of vertices that simd_*.cpp compile once for each instruction set. Portable code, to be inlined.
#pragma once

#include "simd.h"

#if defined(__GNUC__) || defined(__clang__)
#define SPSAMPLE_INLINE __attribute__((always_inline)) static inline
#else
#define SPSAMPLE_INLINE static inline
#endif

namespace spsample {

constexpr int64_t kWordsPerGroup = 64;  // sets have whole groups

SPSAMPLE_INLINE uint32_t bits_set(uint32_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return static_cast<uint32_t>(__builtin_popcount(word));
#else
    word -= (word >> 1) & 0x55555555u;
    word = (word & 0x33333333u) + ((word >> 2) & 0x33333333u);
    return (((word + (word >> 4)) & 0x0F0F0F0Fu) * 0x01010101u) >> 24;
#endif
}

SPSAMPLE_INLINE uint32_t bits_set(uint64_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return static_cast<uint32_t>(__builtin_popcountll(word));
#else
    return bits_set(static_cast<uint32_t>(word)) + bits_set(static_cast<uint32_t>(word >> 32));
#endif
}

SPSAMPLE_INLINE int lowest_bit(uint64_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(word);
#else
    int bit = 0;
    for (; (word & 1) == 0; word >>= 1) ++bit;
    return bit;
#endif
}

SPSAMPLE_INLINE uint32_t rank_of(const RankedWord* words, uint64_t vertex) {
    const RankedWord word = words[vertex >> 5];
    return word.rank + bits_set(word.bits & ((uint32_t(1) << (vertex & 31)) - 1));
}

// One word of the two sets.
struct TakenWord {
    uint64_t all;    // bits of either set
    uint64_t added;  // those not known
    uint32_t rank;   // vertices in words before it
};

// Takes word w out of both sets, and ranks it; `rank` moves on.
SPSAMPLE_INLINE TakenWord take_word(const BitSets& sets, int64_t w, uint32_t* rank) {
    const uint64_t known = sets.known[w], all = sets.found[w] | known;
    const TakenWord taken{all, all & ~known, *rank};
    const uint32_t low = static_cast<uint32_t>(all), high = static_cast<uint32_t>(all >> 32);
    sets.ranks[2 * w] = {low, *rank};
    *rank += bits_set(low);
    sets.ranks[2 * w + 1] = {high, *rank};
    *rank += bits_set(high);
    sets.found[w] = sets.known[w] = 0;
    return taken;
}

template <class Index>
SPSAMPLE_INLINE IdRange<Index> id_range_loop(const Index* ids, int64_t count) {
    IdRange<Index> range{0, 0};
    for (int64_t i = 0; i < count; ++i) {
        range.smallest = ids[i] < range.smallest ? ids[i] : range.smallest;
        range.largest = ids[i] > range.largest ? ids[i] : range.largest;
    }
    return range;
}

template <class Index>
SPSAMPLE_INLINE int64_t take_new_loop(const BitSets& sets, Index* out, uint32_t first, uint32_t* places) {
    const Index* const begin = out;
    uint32_t rank = 0;
    for (int64_t w = 0; w < sets.num_words; ++w) {
        if ((sets.found[w] | sets.known[w]) == 0) continue;
        const TakenWord word = take_word(sets, w, &rank);
        uint32_t* place = places + word.rank;
        for (uint64_t bits = word.all; bits != 0; bits &= bits - 1) {  // without a branch: what is not new is written over
            const int bit = lowest_bit(bits);
            const uint32_t is_new = static_cast<uint32_t>(word.added >> bit) & 1;
            *out = static_cast<Index>(64 * w + bit);
            *place++ = first;
            out += is_new;
            first += is_new;
        }
    }
    return out - begin;
}

template <class Index>
SPSAMPLE_INLINE void place_loop(const RankedWord* ranks, const Index* vertices, int64_t count, uint32_t first, uint32_t* places) {
    for (int64_t i = 0; i < count; ++i) places[rank_of(ranks, static_cast<uint64_t>(vertices[i]))] = first + static_cast<uint32_t>(i);
}

template <class Index>
SPSAMPLE_INLINE void relabel_loop(
    const RankedWord* ranks, const uint32_t* places, const Index* vertices, int64_t count, Index* local) {
    if (places) {
        for (int64_t e = 0; e < count; ++e) local[e] = static_cast<Index>(places[rank_of(ranks, static_cast<uint64_t>(vertices[e]))]);
    } else {
        for (int64_t e = 0; e < count; ++e) local[e] = static_cast<Index>(rank_of(ranks, static_cast<uint64_t>(vertices[e])));
    }
}

}  // namespace spsample
