// The rules of all rows of A, their totals, and the sums by which they are drawn from (row_law_weighted_summed.h): once for a graph.
#include "row_law_weighted_rule.h"
#include "row_law_weighted_summed.h"

using namespace spsample;

namespace {

// Where they go. rules, totals: one for each row. sums: one for each section of A.
struct KeptSums {
    int16_t* rules;
    uint64_t* totals;
    uint64_t* sums;
};

// Sum of the numerators of entries first .. last - 1 of A's, which `weights` begins with entry `begin` of.
__device__ inline uint64_t sum_of(const Quantizer& quantizer, const Real* weights, int64_t begin, int64_t first, int64_t last) {
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < kSumsEvery; ++i) sum += first + i < last ? quantizer(weights[first + i - begin]) : 0;
    return sum;
}

// One row, a thread a section. Reads it twice, or three times where exponents do not tell its rule.
template <class Team>
__device__ void sum_row(const Team& team, const Rows& A, const Weights& weights, int64_t row, const KeptSums& kept) {
    const Real* own = weights.row(A, row);
    const int64_t begin = A.begin(row), degree = A.degree(row), end = begin + degree;
    int64_t positive = 0;
    const int rule = degree > 0 ? find_rule(team, own, degree, &positive) : kNoPositive;
    uint64_t total = 0;
    if (rule != kNoPositive) {
        const Quantizer quantizer(rule >> 1);
        for (int64_t base = begin / kSumsEvery; base * kSumsEvery < end; base += Team::kThreads) {
            const int64_t section = base + team.thread(), next = (section + 1) * kSumsEvery;
            const int64_t first = section * kSumsEvery > begin ? section * kSumsEvery : begin;
            const uint64_t sum = sum_of(quantizer, own, begin, first, next < end ? next : end);
            uint64_t together = 0;
            const uint64_t before = team.before(sum, &together);
            if (next < end) kept.sums[section + 1] = total + before + sum;
            total += together;
        }
    }
    if (team.thread() == 0) {
        kept.rules[row] = static_cast<int16_t>(rule);
        kept.totals[row] = total;
    }
}

}  // namespace

#define SUM_PARAMETERS                                                                                                            \
    SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, int64_t num_rows, int16_t *rules, uint64_t *totals, uint64_t *sums

// A warp a row; rows of more than kLongRow entries are listed (LongRows). O(entries).
extern "C" __global__ void sum_rows(SUM_PARAMETERS, uint64_t* long_count, int64_t* long_rows) {
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const WarpTeam team = {nullptr};
    for (int64_t row = warp_index(); row < num_rows; row += warp_count()) {
        if (A.degree(row) > kLongRow) {
            if (lane_index() == 0) LongRows{long_count, long_rows}.add(row);
        } else {
            sum_row(team, A, weights, row, {rules, totals, sums});
        }
    }
}

// The same for the rows that were listed: a block each.
extern "C" __global__ void __launch_bounds__(BlockTeam::kThreads, 1)
    sum_long_rows(SUM_PARAMETERS, const uint64_t* long_count, const int64_t* long_rows) {
    __shared__ uint64_t exchange[kWarpsPerLongRow];
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const BlockTeam team = {exchange};
    const int64_t count = static_cast<int64_t>(*long_count);
    for (int64_t i = blockIdx.x; i < count; i += gridDim.x) sum_row(team, A, weights, long_rows[i], {rules, totals, sums});
}
