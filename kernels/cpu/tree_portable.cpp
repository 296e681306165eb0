// Trees of weights in portable code, and the choice among the implementations.
#include <algorithm>
#include <limits>

#include "simd.h"
#include "weight_tree.h"

namespace spsample {

namespace {

#define SPSAMPLE_LOOP inline
#define SPSAMPLE_LOOP_LAMBDA
#define SPSAMPLE_LOOP_MEMBER

namespace kernel {

constexpr int kVectorBytes = 16;

uint32_t count_below(const uint32_t* block, uint32_t y) {
    uint32_t below = 0;
    for (int i = 0; i < kTreeLanes; ++i) below += block[i] < y ? 1 : 0;
    return below;
}

// Whether `position` is among the first `count` positions.
bool is_among(const uint32_t* positions, int count, uint32_t position) {
    bool found = false;
    for (int j = 0; j < count; ++j) found |= positions[j] == position;
    return found;
}

// Keeps the first of equal positions; returns how many there are.
int keep_first(uint32_t* positions, int size) {
    int count = 1;
    for (int draw = 1; draw < size; ++draw) {
        const uint32_t position = positions[draw];
        positions[count] = position;
        count += is_among(positions, count, position) ? 0 : 1;
    }
    return count;
}

// Compares each draw with those before it.
struct Repeats {
    bool found = false;

    void add(const uint32_t* positions, int draw) {
        for (int j = 0; j < draw; ++j) found |= positions[j] == positions[draw];
    }
    bool any() const { return found; }
    int keep_first(uint32_t* positions, int size) const { return kernel::keep_first(positions, size); }
};

void philox_block(const TreeDraw& how, const TreeLanes& lanes, int number, uint32_t (*words)[kTreeLanes]) {
    for (int lane = 0; lane < lanes.count; ++lane) {
        const PhiloxWords drawn = philox4x32_10(
            {{lanes.vertex_low[lane], lanes.vertex_high[lane] | how.hop << 16, static_cast<uint32_t>(number), lanes.batch_id[lane]}},
            how.key);
        for (int i = 0; i < 4; ++i) words[i][lane] = drawn.w[i];
    }
}

}  // namespace kernel

#include "tree_loops.h"

template <class Real>
ExponentRange range(const Real* weights, int64_t count) {
    return range_loop(weights, count);
}

template <class Real>
uint64_t prefix_sums(const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums) {
    return prefix_sums_loop<PlainSums>(weights, count, shift, level0, sums);
}

template <bool Wide>
void draw(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes) {
    draw_lanes_loop<Wide>(how, trees, lanes);
}

}  // namespace

const TreeSet kTreesPortable{
    {range<float>, prefix_sums<float>}, {range<double>, prefix_sums<double>}, draw<false>, draw<true>};

const TreeSet& tree_set() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return kTreesAvx512;
    if (&instruction_set() == &kAvx2) return kTreesAvx2;
#endif
    return kTreesPortable;
}

}  // namespace spsample
