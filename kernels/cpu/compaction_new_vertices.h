// The columns of a batch as a bit set of its new vertices alone: for batches with few targets, whose places a small table tells.
//
// Without the targets among them, the rank of a new vertex is its place in src but for the number of targets before all: one look-up
// an entry, where compaction otherwise needs two. Each function has implementations with equal results, as in simd.h.
#pragma once

#include <cstdint>

#include "simd.h"
#include "spsample/hash_table.h"

namespace spsample {

// A set of vertices as bits, 64 a word, and for each 32 of them the place of the first.
struct NewSet {
    uint64_t* bits;
    RankedWord* places;  // 2 num_words
    int64_t num_words;   // a multiple of 8
};

template <class Index>
struct NewSetFunctions {
    // Takes the vertices out of the set, ascending, to `out`, which has room for kLanes more; they get the places first, first + 1, ...
    // A word of `places` without vertices may be left as it was. Returns how many there are. O(num_words + vertices).
    int64_t (*take)(const NewSet& set, Index* out, uint32_t first);

    // local[e] = the place of vertices[e], by `targets` where it is not in the set.
    void (*relabel)(const RankedWord* places, const HashMap<Index, Index>& targets, const Index* vertices, int64_t count, Index* local);
};

// Those of the instruction set in use.
template <class Index>
const NewSetFunctions<Index>& new_set_functions();

extern const NewSetFunctions<int32_t> kNewSetAvx2x32, kNewSetAvx512x32;
extern const NewSetFunctions<int64_t> kNewSetAvx2x64, kNewSetAvx512x64;

}  // namespace spsample
