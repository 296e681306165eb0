// The second pass of the weighted row law where no sums are kept with A, or draws are many: draws from the selected rows
// (row_law_weighted.h; docs/law.md, section 3). Each of its four kernels has a source of its own, so that they are compiled at the
// same time.
//
// Numerators are computed from the weights as they are read and never written out. A row of up to 256 entries is read from memory
// once. A longer one is read once for the sums of its sections; then the sections that draws fall into are read again.
#pragma once

#include "row_law_weighted_rows.h"

namespace spsample {

constexpr int64_t kMostFew = 32;  // sizes up to this one need no memory for the chosen

// The entries chosen so far of a row, for sizes up to kMostFew: in shared memory of the team. bits tell most others apart at
// once.
struct FewChosen {
    using Number = int32_t;  // of draws and entries chosen
    int64_t* entries;  // kMostFew elements
    uint32_t* bits;    // 2 elements

    template <class Team>
    __device__ void clear(const Team& team) const {
        if (team.thread() < 2) bits[team.thread()] = 0;
        team.sync();
    }
    __device__ bool contains(int64_t entry, Number count) const {
        if (((bits[(entry >> 5) & 1] >> (entry & 31)) & 1) == 0) return false;
        for (Number number = 0; number < count; ++number) {
            if (entries[number] == entry) return true;
        }
        return false;
    }
    template <class Team>
    __device__ void end_round(const Team&) const {}
    // Whether it is among the first `count`.
    __device__ bool is_taken_out(int64_t entry, Number count) const { return contains(entry, count); }
    __device__ void add(Number number, int64_t entry) const {
        entries[number] = entry;
        atomicOr(&bits[(entry >> 5) & 1], 1u << (entry & 31));
    }
};

// The same for any size: a hash table of `capacity` slots, a power of two, at least twice as many as entries; empty where -1. An
// entry bears a mark until the round in which it was chosen is over: it is taken out only then.
struct ManyChosen {
    using Number = int64_t;
    static constexpr int64_t kThisRound = int64_t(1) << 62;
    int64_t* keys;
    int64_t capacity;

    template <class Team>
    __device__ void clear(const Team& team) const {
        for (int64_t slot = team.thread(); slot < capacity; slot += Team::kThreads) keys[slot] = -1;
        team.sync();
    }
    template <class Team>
    __device__ void end_round(const Team& team) const {
        for (int64_t slot = team.thread(); slot < capacity; slot += Team::kThreads) {
            const int64_t key = load(slot);
            if (key != -1) keys[slot] = key & ~kThisRound;
        }
        team.sync();
    }
    __device__ bool contains(int64_t entry, int64_t) const { return find(entry) != -1; }
    __device__ bool is_taken_out(int64_t entry, int64_t) const { return find(entry) == entry; }
    __device__ void add(int64_t, int64_t entry) const {
        for (int64_t slot = home(entry);; slot = next(slot)) {
            const uint64_t key = static_cast<uint64_t>(entry | kThisRound);
            if (atomic_cas(reinterpret_cast<uint64_t*>(keys + slot), ~uint64_t(0), key) == ~uint64_t(0)) return;
        }
    }

private:
    __device__ int64_t load(int64_t slot) const { return load_relaxed(keys + slot); }
    __device__ int64_t next(int64_t slot) const { return (slot + 1) & (capacity - 1); }
    __device__ int64_t home(int64_t entry) const {
        const uint64_t product = static_cast<uint64_t>(entry) * uint64_t(0x9E3779B97F4A7C15);
        return static_cast<int64_t>((product >> 24) & static_cast<uint64_t>(capacity - 1));
    }
    // The entry as it stands in the table, or -1.
    __device__ int64_t find(int64_t entry) const {
        for (int64_t slot = home(entry);; slot = next(slot)) {
            const int64_t key = load(slot);
            if (key == -1 || (key & ~kThisRound) == entry) return key;
        }
    }
};

// Numerators of a row; 0 those of the entries that were taken out, which are the first `without` chosen ones.
template <class Chosen>
struct RowNumerators {
    using Weight = Real;
    const Real* weights;
    Quantizer quantizer;
    Chosen chosen;
    typename Chosen::Number without;

    __device__ Real weight(int64_t entry) const { return weights[entry]; }
    // That of an entry of this weight which is not taken out.
    __device__ uint64_t of(Real weight) const { return quantizer(weight); }
    __device__ bool takes_out() const { return without > 0; }
    // What an entry had before it was taken out; 0 if it was not.
    __device__ uint64_t taken_out(int64_t entry) const {
        return chosen.is_taken_out(entry, without) ? of(weight(entry)) : 0;
    }
    __device__ uint64_t operator()(int64_t entry) const {
        return takes_out() && chosen.is_taken_out(entry, without) ? 0 : of(weight(entry));
    }
};

// All entries of positive weight, in A's order; the sections count them, where there are several.
template <class Team>
__device__ void take_positive(
    const Team& team, const RowSections<Team>& sections, const Results& results, const RowRecord& row) {
    for (int section = team.warp(); section < sections.count(); section += Team::kWarps) {
        int64_t number = static_cast<int64_t>(sections.before(section));
#pragma unroll 1
        for (int64_t base = sections.first(section); base < sections.last(section); base += kWarp) {
            const int64_t entry = base + lane_index();
            const bool takes = entry < sections.last(section) && is_positive(row.weights[entry]);
            const unsigned taken = __ballot_sync(kAllLanes, takes);
            if (takes) results.write(row, number + __popc(taken & lanes_below()), entry);
            number += __popc(taken);
        }
    }
}

// Writes the outcomes of a warp's draws that are new, and adds them to the chosen, `count` of which there are, at most
// row.length. Returns how many there are then.
template <class Chosen, class Number = typename Chosen::Number>
__device__ Number add_new(
    const Chosen& chosen, const Results& results, const RowRecord& row, Number count, int64_t entry, bool draws) {
    const int64_t outcome = draws ? entry : -1 - static_cast<int64_t>(lane_index());
    const unsigned same = __match_any_sync(kAllLanes, static_cast<unsigned long long>(outcome));
    const bool is_new = draws && (same & lanes_below()) == 0 && !chosen.contains(entry, count);
    const unsigned all_new = __ballot_sync(kAllLanes, is_new);
    __syncwarp();  // all have looked before one adds
    const Number length = static_cast<Number>(row.length), number = count + __popc(all_new & lanes_below());
    if (is_new && number < length) {
        chosen.add(number, entry);
        results.write(row, number, entry);
    }
    __syncwarp();
    const Number then = count + __popc(all_new);
    return then < length ? then : length;
}

// The entries of a row whose weights are read: those of positive weight where it gives all of them, else row.length draws, repeats
// kept, or the first row.length distinct entries of the draws. False where a further round would pass the last draw number. Sums and
// searches stand here once: each copy of them is many thousand bytes of code.
template <class Team, class Chosen>
__device__ bool give_entries(const Team& team, RowSections<Team>& sections, const DrawArguments& how, const Results& results,
                             const RowRecord& row, const Chosen& chosen) {
    using Number = typename Chosen::Number;
    const bool whole = row.plan == kWhole;
    RowNumerators<Chosen> numerators = {row.weights, whole ? Quantizer::ones() : Quantizer(row.plan), chosen, 0};
    const int64_t round = how.replace ? row.length : kRoundDraws * row.length;
    uint64_t initial_total = 0, total = 0;
    Number count = 0;
    int64_t draw = 0, round_end = 0;
    if (!whole && !how.replace) chosen.clear(team);
    while (true) {
        if (draw == round_end) {
            round_end += round;
            if (draw > 0) {
                if (round_end > DrawStream(how.key, 0, 0, 0, initial_total).count()) return false;
                chosen.end_round(team);
                numerators.without = count;
            }
            if (!whole || sections.count() > 1) total = sections.fill(numerators);
            if (draw == 0) initial_total = total;
            if (whole) break;
        }
        // Each further draw from a row of several sections costs a section; from one section it costs nothing.
        const int64_t wanted = how.replace || sections.count() == 1 ? kWarp : row.length - count;
        const int64_t left = round_end - draw < wanted ? round_end - draw : wanted;
        const int now = static_cast<int>(left < kWarp ? left : kWarp);
        const bool in_range = lane_index() < now;
        const uint64_t x = in_range ? draws_of(how, row, initial_total).below(draw + lane_index(), total) : 0;
        const int64_t entry = sections.position_of(x, in_range, numerators);
        if (how.replace) {
            if (in_range && team.warp() == 0) results.write(row, draw + lane_index(), entry);
        } else {
            if (team.warp() == 0) count = add_new(chosen, results, row, count, entry, in_range);
            count = static_cast<Number>(team.from_first_warp(count));
        }
        draw += now;
        if (how.replace ? draw == row.length : count == static_cast<Number>(row.length)) return true;
    }
    take_positive(team, sections, results, row);
    return true;
}

template <class Team, class Chosen>
__device__ void give_row(const Team& team, uint64_t* shared_ends, int64_t* found, const Chosen& chosen, const DrawArguments& how,
                         const Results& results, const RowRecord& row, uint64_t* failed) {
    if (row.plan == kWhole && row.length == row.degree) {
        for (int64_t entry = team.thread(); entry < row.degree; entry += Team::kThreads) results.write(row, entry, entry);
    } else {
        RowSections<Team> sections(team, shared_ends, found, static_cast<typename Team::Entry>(row.degree));
        if (!give_entries(team, sections, how, results, row, chosen)) *failed = 1;
    }
    team.sync();  // shared memory is used again
}

#define GIVE_PARAMETERS                                                                                                     \
    const int64_t *ends, const int16_t *plans, Index *columns, int64_t *positions, Real *drawn_weights, uint64_t *long_count, \
        int64_t *long_rows, uint64_t *failed
#define RESULTS \
    Results { ends, plans, columns, positions, drawn_weights }

// The rows of one warp, rows_per_warp at a time: a lane finds out about a row, then the warp does one after the other.
// records: 32 elements of shared memory.
template <class Chosen>
__device__ void give_rows(const Rows& A, const Weights& weights, const Selector& Q, const DrawArguments& how, const Results& results,
                          const LongRows& long_ones, int64_t rows_per_warp, uint64_t* shared_ends, RowRecord* records,
                          const Chosen& chosen, uint64_t* failed) {
    const WarpTeam team = {nullptr};
    for (int64_t base = warp_index() * rows_per_warp; base < Q.num_rows; base += warp_count() * rows_per_warp) {
        const int64_t r = base + lane_index();
        bool gives = lane_index() < rows_per_warp && r < Q.num_rows && results.plans[r] != kNothing;
        if (gives) {
            const int64_t row = Q.vertices[r], degree = A.degree(row);
            if (degree > kLongRow) {
                long_ones.add(r);
                gives = false;
            } else {
                records[lane_index()] = record_of(A, weights, Q, results, r, row, degree);
            }
        }
        unsigned rest = __ballot_sync(kAllLanes, gives);
        __syncwarp();
        for (; rest != 0; rest &= rest - 1) {
            give_row(team, shared_ends, nullptr, chosen, how, results, records[__ffs(rest) - 1], failed);
        }
    }
}

// The long rows, a block each. record: in shared memory.
template <class Chosen>
__device__ void give_long_rows(const Rows& A, const Weights& weights, const Selector& Q, const DrawArguments& how,
                               const Results& results, const LongRows& long_ones, const BlockTeam& team, uint64_t* shared_ends,
                               int64_t* found, RowRecord* record, const Chosen& chosen, uint64_t* failed) {
    const int64_t count = static_cast<int64_t>(*long_ones.count);
    for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
        const int64_t r = long_ones.rows[i], row = Q.vertices[r];
        if (team.thread() == 0) *record = record_of(A, weights, Q, results, r, row, A.degree(row));
        team.sync();
        give_row(team, shared_ends, found, chosen, how, results, *record, failed);
    }
}

}  // namespace spsample

#define DRAW_PARAMETERS \
    SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_DRAW_PARAMETERS, GIVE_PARAMETERS
#define DRAW_ARGUMENTS \
    SPSAMPLE_ROWS, SPSAMPLE_ROW_WEIGHTS, SPSAMPLE_SELECTOR, SPSAMPLE_DRAW, RESULTS, LongRows{long_count, long_rows}
