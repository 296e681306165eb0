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
    uint32_t hop;
    int64_t batch_id;
    int size;  // 1 .. kMostVectorDraws
    bool replace;
};

// Up to kLanes rows of one batch and what was drawn from them. Lanes without a row have degree 0.
struct Lanes {
    alignas(64) uint32_t vertex_low[kLanes];
    alignas(64) uint32_t vertex_high[kLanes];  // bits 32 .. 47
    alignas(64) uint32_t degree[kLanes];       // at most 2^31
    alignas(64) uint32_t positions[kMostVectorDraws][kLanes];  // draw j of each lane, a position within the row
};

struct InstructionSet {
    const char* name;

    // The row law, uniform: `how.size` positions of each lane into lanes.positions. Lanes that are taken whole (degree <= size,
    // without replacement) get 0, 1, 2, ...; those of degree 0 nothing of use. O(size^2 / 2) compares of all lanes.
    void (*draw_lanes)(const LaneDraw& how, Lanes& lanes);
};

// The one in use.
const InstructionSet& instruction_set();

// Chooses by name: "portable", "avx2", "avx512". False where the processor (or the build) lacks it.
bool set_instruction_set(const char* name);

// --- implementations --------------------------------------------------------------------------------------------------

void draw_lane(const LaneDraw& how, Lanes& lanes, int lane);  // one lane, exactly by the law
void draw_lanes_portable(const LaneDraw& how, Lanes& lanes);
#if SPSAMPLE_X86
void draw_lanes_avx2(const LaneDraw& how, Lanes& lanes);
void draw_lanes_avx512(const LaneDraw& how, Lanes& lanes);
#endif

}  // namespace spsample
