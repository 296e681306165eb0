// What the two passes of the weighted row law share (row_law_weighted_plan.cu, row_law_weighted_draw.h), which are for float and double weights
// only.
//
// Each pass has two kernels: one warp a row, and a block for each row of more than kLongRow entries, which the first kernel puts
// in a list. The first pass finds how many entries each row gives and its exponent K; where the row's rule is known from an
// earlier call it reads no weights. The second pass sums up the row's numerators and draws 32 times at once. Where sums of
// the row are kept with A (row_law_weighted_summed.h), its few draws need the weights of a section each instead.
#pragma once

#ifndef SPSAMPLE_WEIGHTS
#define SPSAMPLE_WEIGHTS ArrayWeights<float>
#endif
#include "row_law_sections.h"
#include "spsample/quantisation.h"
#include "spsample/row_law.h"

namespace spsample {

constexpr int kWarpsPerBlock = 8;     // of the kernels of one warp a row
constexpr int kWarpsPerLongRow = 16;  // a block a row
using WarpTeam = Team<1>;
using BlockTeam = Team<kWarpsPerLongRow>;

template <class Kind>
struct WeightType;
template <class Real>
struct WeightType<ArrayWeights<Real>> {
    using type = Real;
};
using Real = WeightType<SPSAMPLE_WEIGHTS>::type;

// What the first pass tells the second of each selected row: one of these, or K, by which to draw.
constexpr int kNothing = -32768;  // no entries
constexpr int kWhole = -32767;    // all entries of positive weight

// The rows that are for blocks, in any order. count: 0 at first; rows: room for all there may be.
struct LongRows {
    uint64_t* count;
    int64_t* rows;

    __device__ void add(int64_t r) const { rows[atomic_add(count, uint64_t(1))] = r; }
};

}  // namespace spsample
