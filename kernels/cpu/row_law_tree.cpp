// Trees of weights in portable code, and the choice among the implementations.
#include <algorithm>
#include <limits>

#include "simd.h"
#include "row_law_ranks.h"
#include "row_law_tree.h"

namespace spsample {

namespace {

#define SPSAMPLE_LOOP inline
#define SPSAMPLE_LOOP_LAMBDA
#define SPSAMPLE_LOOP_MEMBER

namespace kernel {

constexpr int kVectorBytes = 16;
constexpr bool kOwnLoopOfUsualFanouts = false;  // would gain little here, and takes long to compile

using Bound = uint32_t;

Bound bound(const uint32_t* unit) { return *unit; }

uint32_t count_below(const uint32_t* block, Bound bound) {
    uint32_t below = 0;
    for (int i = 0; i < kTreeLanes; ++i) below += block[i] < bound ? 1 : 0;
    return below;
}

using Mask = bool;

Mask equal(const uint32_t* block, uint32_t below, Bound, uint32_t unit) { return block[below] == unit; }

// The distinct positions of a lane, in its own place.
struct Distinct {
    uint32_t* positions;  // every 16th element
    int count = 0;

    explicit Distinct(uint32_t* of_lane) : positions(of_lane) {}

    // Adds a position of which it is known whether it repeats one before it.
    void add_known(uint32_t position, bool repeated) {
        positions[count * kTreeLanes] = position;
        count += repeated ? 0 : 1;
    }

    void add(uint32_t position) {
        bool found = false;
        for (int j = 0; j < count; ++j) found |= positions[j * kTreeLanes] == position;
        positions[count * kTreeLanes] = position;
        count += found ? 0 : 1;
    }
};

// Bit l of repeated[j]: whether position j of lane l is among those before it, for first <= j < end. Returns them all together.
uint32_t repeats(const LaneWords* positions, int first, int end, uint32_t* repeated) {
    uint32_t all = 0;
    for (int draw = first; draw < end; ++draw) {
        uint32_t equal[kTreeLanes] = {};
        for (int before = 0; before < draw; ++before) {
            for (int lane = 0; lane < kTreeLanes; ++lane) equal[lane] |= positions[before][lane] == positions[draw][lane];
        }
        repeated[draw] = 0;
        for (int lane = 0; lane < kTreeLanes; ++lane) repeated[draw] |= equal[lane] << lane;
        all |= repeated[draw];
    }
    return all;
}

void philox(const LaneCounters& c, const TreeDraw& how, int count, LaneWords* words) {
    for (int lane = 0; lane < count; ++lane) {
        const PhiloxWords drawn =
            philox4x32_10({{c.words[0][lane], c.words[1][lane], c.words[2][lane], c.words[3][lane]}}, how.key);
        for (int i = 0; i < 4; ++i) words[i][lane] = drawn.w[i];
    }
}

}  // namespace kernel

#include "row_law_tree_loops.h"
#include "row_law_ranks_loops.h"

template <class Real>
ExponentRange range(const Real* weights, int64_t count) {
    return range_loop(weights, count);
}

template <class Real>
uint64_t prefix_sums(
    const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums, const PrefetchRange& ahead) {
    return prefix_sums_loop<PlainSums>(weights, count, shift, level0, sums, ahead);
}

template <bool Wide>
void draw(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes) {
    draw_lanes_loop<Wide, PlainUnits>(how, trees, lanes);
}

void draw_ranked(const TreeDraw& how, const RankedLanes& rows, TreeLanes& lanes) {
    draw_ranked_loop<PlainUnits>(how, rows, lanes);
}

}  // namespace

const TreeSet kTreesPortable{
    {range<float>, prefix_sums<float>}, {range<double>, prefix_sums<double>}, draw<false>, draw<true>, draw_ranked};

const TreeSet& tree_set() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return kTreesAvx512;
    if (&instruction_set() == &kAvx2) return kTreesAvx2;
#endif
    return kTreesPortable;
}

}  // namespace spsample
