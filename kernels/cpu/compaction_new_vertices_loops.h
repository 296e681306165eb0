// Loops over a set of new vertices that compaction_new_vertices*.cpp compile once for each instruction set. Portable code, to be inlined.
#pragma once

#include "compaction_new_vertices.h"
#include "simd_ranks.h"

namespace spsample {

// Writes the places of the words of one 64-bit word; returns the next place.
SPSAMPLE_INLINE uint32_t write_places(uint64_t bits, RankedWord* places, uint32_t first) {
    const uint32_t low = static_cast<uint32_t>(bits), high = static_cast<uint32_t>(bits >> 32);
    places[0] = {low, first};
    places[1] = {high, first + bits_set(low)};
    return places[1].rank + bits_set(high);
}

template <class Index>
SPSAMPLE_INLINE int64_t take_loop(const NewSet& set, Index* out, uint32_t first) {
    const Index* const begin = out;
    for (int64_t w = 0; w < set.num_words; ++w) {
        uint64_t bits = set.bits[w];
        if (bits == 0) continue;
        set.bits[w] = 0;
        first = write_places(bits, set.places + 2 * w, first);
        for (; bits != 0; bits &= bits - 1) *out++ = static_cast<Index>(64 * w + lowest_bit(bits));
    }
    return out - begin;
}

template <class Index>
SPSAMPLE_INLINE void relabel_new_loop(
    const RankedWord* places, const HashMap<Index, Index>& targets, const Index* vertices, int64_t count, Index* local) {
    for (int64_t e = 0; e < count; ++e) {
        const Index vertex = vertices[e];
        const RankedWord word = places[static_cast<uint64_t>(vertex) >> 5];
        const uint32_t bit = uint32_t(1) << (vertex & 31);
        if ((word.bits & bit) != 0) {
            local[e] = static_cast<Index>(word.rank + bits_set(word.bits & (bit - 1)));
        } else {
            local[e] = targets.values[targets.slot_of(vertex)];
        }
    }
}

}  // namespace spsample
