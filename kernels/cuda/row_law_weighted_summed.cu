// Few draws from each row by sums that are kept with A (row_law_weighted_summed.h): some lanes a row, one lane a draw.
#include "row_law_weighted_summed.h"

using namespace spsample;

namespace {

// Rows of up to this many times the square of the entries drawn get more draws at once than these: one in 16 or more would give an
// entry twice.
constexpr int64_t kRepeatsBelow = 16;

// The lanes of a warp that work on one row: `width` of them from lane `first` on; this one is number `within`. Lanes that are left
// over look on at the first row, each as number kWarp.
struct Lanes {
    int width, first, within;

    __device__ unsigned mask() const { return (kAllLanes >> (kWarp - width)) << first; }
    __device__ uint64_t tag() const { return static_cast<uint64_t>(first) << 58; }  // tells rows apart; degrees are below 2^58
};

__device__ inline Lanes lanes_of(int width) {
    const int first = lane_index() / width * width;
    if (first + width > kWarp) return {width, 0, kWarp};
    return {width, first, lane_index() - first};
}

// The entries chosen so far, of all rows of a warp, a row's from its lane `first` on: in shared memory. Of those that were taken out
// also their numerators, and where their intervals would begin if all intervals before them were taken out (its.h, TakenOut).
struct ChosenEntries {
    int64_t entries[kWarp];
    uint64_t numerators[kWarp];
    uint64_t starts[kWarp];
};

// All entries of positive weight, in A's order, of the rows that give these. All lanes call it together.
__device__ inline void take_positive(const Lanes& lanes, const Results& results, const RowRecord& row) {
    const bool whole = row.plan == kWhole;
    int64_t number = 0;
#pragma unroll 1
    for (int64_t base = 0; __any_sync(kAllLanes, whole && number < row.length); base += lanes.width) {
        const int64_t entry = base + lanes.within;
        const bool looks = whole && number < row.length && lanes.within < lanes.width && entry < row.degree;
        const bool takes = looks && is_positive(row.weights[entry]);
        const unsigned taken = __ballot_sync(kAllLanes, takes) & lanes.mask();
        if (takes) results.write(row, number + __popc(taken & lanes_below()), entry);
        number += __popc(taken);
    }
}

// A row and totals of its numerators, in shared memory.
struct TotalledRow {
    RowRecord row;
    uint64_t initial_total;
    uint64_t total;           // of what is not taken out
    uint64_t rejected_below;  // by DrawStream, of draws from these

    __device__ DrawStream draws(const DrawArguments& how) const { return draws_of(how, row, initial_total); }
    __device__ void set_total(const DrawArguments& how, uint64_t t) {
        total = t;
        rejected_below = draws(how).rejected_below(t);
    }
};

// The draws of one row, which its lanes make together. All lanes of the warp call each method together.
class RowDraws {
public:
    __device__ RowDraws(const Lanes& lanes, ChosenEntries& chosen, const DrawArguments& how, TotalledRow& row,
                        const uint64_t* sums)
        : lanes_(lanes),
          chosen_(chosen),
          how_(how),
          totals_(row),
          row_(row.row),
          summed_(row.row, sums),
          length_(static_cast<int>(row.row.length)),
          round_end_(how.replace ? length_ : kRoundDraws * length_),
          is_open_(row.row.plan > kWhole) {}

    __device__ bool is_open() const { return is_open_; }

    // The next draws, at most one a lane; writes what is new.
    __device__ void step(const Results& results) {
        if (!how_.replace) begin_round();
        const int wanted = wants(), number = wanted < lanes_.width ? wanted : lanes_.width;
        const bool draws = is_open_ && lanes_.within < number;
        int64_t entry = 0;
        if (draws) entry = position_of(draw_ + lanes_.within);
        if (how_.replace) {
            if (draws) results.write(row_, draw_ + lanes_.within, entry);
        } else {
            add_new(results, entry, draws);
        }
        draw_ += number;
        is_open_ = is_open_ && (how_.replace ? draw_ : count_) < length_;
    }

private:
    __device__ int64_t position_of(int draw) const {
        return summed_.position_of(shifted(totals_.draws(how_).below(draw, totals_.total, totals_.rejected_below)));
    }

    // Draws to make. Some more than entries that are missing where repeats are likely: these cost little, a further step more.
    __device__ int wants() const {
        const int left = round_end_ - draw_;
        if (how_.replace) return left;
        const bool may_repeat = row_.degree <= kRepeatsBelow * length_ * length_;
        const int missing = may_repeat ? lanes_.width : length_ - count_;
        return missing < left ? missing : left;
    }

    // Before the first draw of a round but the first, takes the chosen entries out.
    __device__ void begin_round() {
        const bool begins = is_open_ && draw_ == round_end_;
        if (!__any_sync(kAllLanes, begins)) return;
        const bool is_chosen = begins && lanes_.within < count_;
        const int mine = lanes_.first + lanes_.within;
        const int64_t entry = is_chosen ? chosen_.entries[mine] : 0;
        if (is_chosen) chosen_.numerators[mine] = summed_.numerator(entry);
        __syncwarp();
        uint64_t before = 0, all = 0;
        for (int other = lanes_.first; begins && other < lanes_.first + count_; ++other) {
            all += chosen_.numerators[other];
            before += chosen_.entries[other] < entry ? chosen_.numerators[other] : 0;
        }
        if (is_chosen) chosen_.starts[mine] = summed_.before(entry) - before;
        if (begins && lanes_.within == 0) totals_.set_total(how_, totals_.initial_total - all);
        __syncwarp();
        if (!begins) return;
        without_ = count_;
        round_end_ += kRoundDraws * length_;
    }

    // From a unit of what is left to that of the whole row.
    __device__ uint64_t shifted(uint64_t x) const {
        uint64_t removed = 0;
        for (int other = lanes_.first; other < lanes_.first + without_; ++other) {
            removed += chosen_.starts[other] <= x ? chosen_.numerators[other] : 0;
        }
        return x + removed;
    }

    __device__ bool is_known(int64_t entry) const {
        bool known = false;
        for (int other = lanes_.first; other < lanes_.first + count_; ++other) known |= chosen_.entries[other] == entry;
        return known;
    }

    // Writes the outcomes that are new, and adds them to the chosen, row.length at most.
    __device__ void add_new(const Results& results, int64_t entry, bool draws) {
        const uint64_t none = uint64_t(1) << 63 | static_cast<uint64_t>(lane_index());
        const unsigned same = __match_any_sync(kAllLanes, draws ? lanes_.tag() | static_cast<uint64_t>(entry) : none);
        const bool is_new = draws && (same & lanes_below()) == 0 && !is_known(entry);
        const unsigned all_new = __ballot_sync(kAllLanes, is_new) & lanes_.mask();
        __syncwarp();  // all have looked before one adds
        const int number = count_ + __popc(all_new & lanes_below());
        if (is_new && number < length_) {
            chosen_.entries[lanes_.first + number] = entry;
            results.write(row_, number, entry);
        }
        __syncwarp();
        const int then = count_ + __popc(all_new);
        count_ = then < length_ ? then : length_;
    }

    const Lanes lanes_;
    ChosenEntries& chosen_;
    const DrawArguments& how_;
    TotalledRow& totals_;
    const RowRecord& row_;
    const SummedRow summed_;
    const int length_;  // entries to give: below 2^30
    int draw_ = 0, round_end_;
    int count_ = 0, without_ = 0;  // entries chosen, and those of them that are taken out
    bool is_open_;
};

}  // namespace

// Writes the entries of the selected rows. `width` lanes a row, 1 to 32; size <= width, or with replacement. A warp has rows_per_warp rows
// at a time, a multiple of 32 div width, 32 at most: a lane finds out about a row, then the warp draws from 32 div width at once. plans:
// of the first pass; order: as of row_at; totals, sums: of sum_rows. O(log degree) a draw, and O(entries) of rows that are taken whole.
extern "C" __global__ void __launch_bounds__(256, 4)
    draw_summed(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_DRAW_PARAMETERS,
                int64_t width, int64_t rows_per_warp, const int64_t* order, const uint64_t* totals, const uint64_t* sums,
                const int64_t* ends, const int16_t* plans, Index* columns, int64_t* positions, Real* drawn_weights) {
    __shared__ TotalledRow records[kWarpsPerBlock][kWarp];
    __shared__ ChosenEntries chosen[kWarpsPerBlock];
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const DrawArguments how = SPSAMPLE_DRAW;
    const Results results = {ends, plans, columns, positions, drawn_weights};
    const int warp = static_cast<int>(threadIdx.x / kWarp);
    const Lanes lanes = lanes_of(static_cast<int>(width));
    const int at_once = kWarp / lanes.width;
    for (int64_t base = warp_index() * rows_per_warp; base < Q.num_rows; base += warp_count() * rows_per_warp) {
        const int64_t turn = base + lane_index();
        const int64_t r = lane_index() < rows_per_warp && turn < Q.num_rows ? row_at(order, turn) : Q.num_rows;
        TotalledRow& mine = records[warp][lane_index()];
        if (r < Q.num_rows && plans[r] != kNothing) {
            const int64_t number = Q.vertices[r];
            mine.row = record_of(A, weights, Q, results, r, number, A.degree(number));
            mine.initial_total = totals[number];
            mine.set_total(how, mine.initial_total);
        } else {
            mine.row.degree = mine.row.length = 0;
            mine.row.plan = kNothing;
        }
        __syncwarp();
        for (int first = 0; first < rows_per_warp; first += at_once) {
            TotalledRow& row = records[warp][first + lanes.first / lanes.width];
            take_positive(lanes, results, row.row);
            RowDraws draws(lanes, chosen[warp], how, row, sums);
            while (__any_sync(kAllLanes, draws.is_open())) draws.step(results);
            __syncwarp();  // shared memory is used again
        }
    }
}
