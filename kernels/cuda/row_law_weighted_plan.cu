// The first pass of the weighted row law: how many entries each selected row gives, and how (row_law_weighted.h; docs/law.md,
// section 2).
#include "row_law_weighted_rule.h"

using namespace spsample;

namespace {

// Number of positive entries, or some number above `enough`.
template <class Team>
__device__ int64_t count_positive(const Team& team, const Real* weights, int64_t degree, int64_t enough) {
    constexpr int64_t kAtOnce = 4 * Team::kThreads;
    int64_t positive = 0;
    for (int64_t base = 0; base < degree && positive <= enough; base += kAtOnce) {
        const int64_t stop = base + kAtOnce < degree ? base + kAtOnce : degree;
        uint64_t mine = 0;
        for (int64_t entry = base + team.thread(); entry < stop; entry += Team::kThreads) {
            mine += is_positive(weights[entry]) ? 1 : 0;
        }
        positive += static_cast<int64_t>(team.reduce(mine, Sum()));
    }
    return positive;
}

// What the first pass finds of selected rows and where it writes it. rules may be null; other blocks may write the same rule there
// while it is read, so that both are atomic.
struct RowPlans {
    int64_t size;
    bool replace;
    int16_t* rules;
    int64_t* lengths;
    int16_t* plans;

    __device__ int rule(int64_t row, int64_t degree) const {
        if (degree == 0) return kNoPositive;
        return rules ? load_relaxed(rules + row) : kUnknownRule;
    }

    // Whether weights are to be read for a row: its rule is not known, or its weights of 0 are not counted.
    __device__ bool must_read(int rule) const {
        if (rule == kUnknownRule) return true;
        return rule != kNoPositive && !replace && (rule & 1) != 0;
    }

    // Reads the weights of a row. Returns its number of positive entries, as far as it matters.
    template <class Team>
    __device__ int64_t read(const Team& team, const Real* weights, int64_t row, int64_t degree, int* rule) const {
        if (*rule != kUnknownRule) return count_positive(team, weights, degree, size);
        int64_t positive = 0;
        *rule = find_rule(team, weights, degree, &positive);
        if (rules && team.thread() == 0) store_relaxed(rules + row, static_cast<int16_t>(*rule));
        return positive;
    }

    __device__ void write(int64_t r, int rule, int64_t positive) const {
        const int64_t length = rule == kNoPositive ? 0 : drawn_count(positive, size, replace);
        lengths[r] = length;
        const int shift = rule >> 1;
        plans[r] = static_cast<int16_t>(length == 0 ? kNothing : !replace && positive <= size ? kWhole : shift);
    }
};

}  // namespace

#define PLAN_PARAMETERS int64_t size, int64_t replace, int16_t *rules, int64_t *lengths, int16_t *plans
#define PLANS \
    RowPlans { size, replace != 0, rules, lengths, plans }

// lengths and plans (Q_rows): how many entries each selected row gives, and how. rules (rows of A) may be null; long_count and
// long_rows as in LongRows. A lane looks at a row's rule, a warp at its weights; a warp has rows_per_warp (1 to 32) rows at a
// time. O(rows), and O(entries) of the rows whose weights are read.
extern "C" __global__ void __launch_bounds__(256, 4)
    plan_weighted(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, PLAN_PARAMETERS,
                  int64_t rows_per_warp, uint64_t* long_count, int64_t* long_rows) {
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const RowPlans found = PLANS;
    const WarpTeam team = {nullptr};
    for (int64_t base = warp_index() * rows_per_warp; base < Q.num_rows; base += warp_count() * rows_per_warp) {
        const int64_t r = base + lane_index();
        const bool has_row = lane_index() < rows_per_warp && r < Q.num_rows;
        const int64_t row = has_row ? static_cast<int64_t>(Q.vertices[r]) : 0;
        const int64_t degree = has_row ? A.degree(row) : 0;
        const int rule = has_row ? found.rule(row, degree) : kNoPositive;
        bool reads = has_row && found.must_read(rule);
        if (has_row && !reads) found.write(r, rule, degree);
        if (reads && degree > kLongRow) {
            LongRows{long_count, long_rows}.add(r);
            reads = false;
        }
        for (unsigned rest = __ballot_sync(kAllLanes, reads); rest != 0; rest &= rest - 1) {
            const int from = __ffs(rest) - 1;
            const int64_t its_row = __shfl_sync(kAllLanes, row, from), its_degree = __shfl_sync(kAllLanes, degree, from);
            int its_rule = __shfl_sync(kAllLanes, rule, from);
            const int64_t positive = found.read(team, weights.row(A, its_row), its_row, its_degree, &its_rule);
            if (lane_index() == from) found.write(r, its_rule, positive);
        }
    }
}

// The same for the long rows: a block each.
extern "C" __global__ void __launch_bounds__(BlockTeam::kThreads, 1)
    plan_weighted_long(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, PLAN_PARAMETERS,
                       const uint64_t* long_count, const int64_t* long_rows) {
    __shared__ uint64_t exchange[kWarpsPerLongRow];
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const RowPlans found = PLANS;
    const BlockTeam team = {exchange};
    const int64_t count = static_cast<int64_t>(*long_count);
    for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
        const int64_t r = long_rows[i], row = Q.vertices[r], degree = A.degree(row);
        // One thread reads the rule: another block may write it meanwhile, and all threads must go the same way.
        int rule = static_cast<int>(team.from_first_warp(team.thread() == 0 ? found.rule(row, degree) : 0));
        const int64_t positive = found.must_read(rule) ? found.read(team, weights.row(A, row), row, degree, &rule) : degree;
        if (team.thread() == 0) found.write(r, rule, positive);
    }
}
