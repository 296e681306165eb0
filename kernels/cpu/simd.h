// What the vector code of this folder computes, and the choice of instruction set at run time.
//
// Each function here has up to three implementations: portable (the row laws of kernels/include/spsample, lane by lane),
// AVX2 and AVX-512. They give equal bits; the best that the processor has is chosen when the module is loaded.
#pragma once

#include <cstdint>

#include "spsample/philox.h"

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define SPSAMPLE_X86 1
#else
#define SPSAMPLE_X86 0
#endif

namespace spsample {

constexpr int kLanes = 16;           // rows drawn at a time
constexpr int kMostVectorDraws = 64;  // a row of a larger fanout is drawn by itself

// How all rows of a group are drawn.
struct LaneDraw {
    PhiloxKey key;
    RoundKeys keys;  // of `key`
    uint32_t hop;
    int size;  // 1 .. kMostVectorDraws
    bool replace;
    BlockStart starts[kMostVectorDraws / 4];  // of the blocks that `size` draws need, for vertices below 2^32

    LaneDraw(PhiloxKey key, uint32_t hop, int size, bool replace) : key(key), keys(key), hop(hop), size(size), replace(replace) {
        for (int block = 0; block < (size + 3) / 4; ++block) starts[block] = block_start(static_cast<uint32_t>(block), hop << 16, keys);
    }
};

// kLanes rows, each for one batch, of more than `size` entries or, with replacement, of some; and what was drawn from them.
struct Lanes {
    alignas(64) uint32_t vertex_low[kLanes];
    alignas(64) uint32_t vertex_high[kLanes];  // bits 32 .. 47
    alignas(64) uint32_t batch_id[kLanes];
    alignas(64) uint32_t degree[kLanes];       // at most 2^31
    alignas(64) uint32_t positions[kMostVectorDraws][kLanes];  // draw j of each lane, a position within the row
};

// 32 vertices of a set, and how many vertices of it come before them.
struct RankedWord {
    uint32_t bits;
    uint32_t rank;
};

// Two sets of vertices as bits, 64 a word, and ranks within their union.
struct BitSets {
    uint64_t* known;
    uint64_t* found;
    RankedWord* ranks;  // 2 num_words; only those of words with bits are ever written
    int64_t num_words;  // a multiple of 64
};

template <class Index>
struct IdRange {
    Index smallest;
    Index largest;
};

// Functions on sets of vertices, for one index type.
template <class Index>
struct SetFunctions {
    // The smallest and the largest of 0 and the ids. O(count).
    IdRange<Index> (*id_range)(const Index* ids, int64_t count);

    // Writes the vertices of `found` that are not known, ascending, to `out`, first, first + 1, ... to `places` at their ranks, and
    // the ranks of all; leaves both sets empty. `out` and `places` have room for kLanes elements more, and `places` holds
    // anything at the ranks of known vertices. Returns how many were written to `out`. O(num_words + vertices).
    int64_t (*take_new)(const BitSets& sets, Index* out, uint32_t first, uint32_t* places);

    // places[rank of vertices[i]] = first + i.
    void (*place)(const RankedWord* ranks, const Index* vertices, int64_t count, uint32_t first, uint32_t* places);

    // local[e] = places[rank of vertices[e]], or the rank itself where `places` is null.
    void (*relabel)(const RankedWord* ranks, const uint32_t* places, const Index* vertices, int64_t count, Index* local);
};

struct InstructionSet {
    const char* name;

    // The row law, uniform: `how.size` positions of each lane into lanes.positions. O(size^2 / 2) compares of all lanes.
    void (*draw_lanes)(const LaneDraw& how, Lanes& lanes);

    SetFunctions<int32_t> sets32;
    SetFunctions<int64_t> sets64;

    template <class Index>
    const SetFunctions<Index>& sets() const {
        if constexpr (sizeof(Index) == 4) {
            return sets32;
        } else {
            return sets64;
        }
    }
};

// The one in use.
const InstructionSet& instruction_set();

// Chooses by name: "portable", "avx2", "avx512". False where the processor (or the build) lacks it.
bool set_instruction_set(const char* name);

// --- implementations --------------------------------------------------------------------------------------------------

void draw_lane(const LaneDraw& how, Lanes& lanes, int lane);  // one lane, exactly by the law

#if SPSAMPLE_X86
extern const InstructionSet kAvx2;
extern const InstructionSet kAvx512;
#endif

}  // namespace spsample
