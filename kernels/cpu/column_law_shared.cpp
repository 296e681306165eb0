// FastGCN's draw: the column law where every batch draws from one row over all columns (docs/law.md, section 3), given as inclusive
// prefix sums and a guide table that leads from a unit to its column.
//
// The guide table (Chen and Asau, "On generating random variates from an empirical distribution", AIIE Transactions 6, 1974) cuts
// [0, T) into slices of 2^shift units, at most one per column, and holds the position of each slice's first unit. A unit's column
// is between the positions of its own slice and the next: two neighbours in the table and a few prefix sums, where a search among
// all of them would touch log2 n cache lines.
#include <algorithm>
#include <limits>

#include "column_law_shared.h"
#include "distinct_draws.h"

namespace spsample {
namespace {

// Slices of [0, total): the smallest shift that makes at most max(count, 1) of them.
struct Slices {
    int shift = 0;
    int64_t count = 0;

    Slices(uint64_t total, int64_t limit) {
        if (total == 0) return;
        while ((total - 1) >> shift >= static_cast<uint64_t>(std::max<int64_t>(limit, 1))) ++shift;
        count = static_cast<int64_t>((total - 1) >> shift) + 1;
    }
};

// A PrefixRow with its guide table: Slices::count + 1 positions.
template <class Position>
struct GuidedRow : PrefixRow {
    const Position* guide;
    int shift;

    int64_t position_of(uint64_t x) const {
        const Position* slice = guide + (x >> shift);
        return slice[0] + upper_bound(inclusive + slice[0], slice[1] - slice[0], x);
    }
    void fetch_guide(uint64_t x) const { SPSAMPLE_PREFETCH(guide + (x >> shift)); }
    void fetch_sums(uint64_t x) const { SPSAMPLE_PREFETCH(inclusive + guide[x >> shift]); }
};

// cumulative: inclusive prefix sums (n). The table's last position is that of unit T - 1. O(n).
template <class Position>
Buffer<Position> guide_table(const PrefixRow& row) {
    const Slices slices(row.total(), row.count);
    Buffer<Position> guide(slices.count + 1);
    int64_t position = 0;
    for (int64_t g = 0; g < slices.count; ++g) {
        while (row.inclusive[position] <= static_cast<uint64_t>(g) << slices.shift) ++position;
        guide[g] = static_cast<Position>(position);
    }
    while (row.total() > 0 && row.inclusive[position] < row.total()) ++position;
    guide[slices.count] = static_cast<Position>(position);
    return guide;
}

nb::object shared_guide(const In<uint64_t>& cumulative) {
    const PrefixRow row = prefix_row(cumulative);
    if (row.count <= std::numeric_limits<int32_t>::max()) return nb::cast(to_numpy(guide_table<int32_t>(row)));
    return nb::cast(to_numpy(guide_table<int64_t>(row)));
}

// Draws 0, 1, 2, ... of the first round, until `chosen` (empty) has `size` positions or the round is over: by blocks, whose cache
// lines are on their way while others are read. Returns the number of the next draw.
template <class Row>
int64_t first_round(const Row& row, int64_t size, DrawStream& draws, Chosen& chosen) {
    constexpr int64_t kBlock = 64, kLeast = 8;
    uint64_t units[kBlock];
    int64_t draw = 0;
    while (chosen.count < size && draw < kRoundDraws * size) {
        const int64_t count = std::min({kBlock, std::max(kLeast, size - chosen.count), kRoundDraws * size - draw});
        for (int64_t j = 0; j < count; ++j) {
            units[j] = draws.below(draw + j, row.total());
            row.fetch_guide(units[j]);
        }
        for (int64_t j = 0; j < count; ++j) row.fetch_sums(units[j]);
        for (int64_t j = 0; j < count && chosen.count < size; ++j) chosen.add(row.position_of(units[j]));
        draw += count;
    }
    return draw;
}

// The positions that one batch draws and how often.
template <class Position>
Chosen draw_guided(
    const GuidedRow<Position>& row, const DrawArguments& draw, int64_t batch_id, bool whole, DrawScratch& scratch, int64_t* counts) {
    if (draw.replace || whole || row.total() == 0) return draw_positions(row, draw, batch_id, whole, scratch, counts);
    const int64_t limit = std::min(draw.size, row.count);
    Chosen chosen = scratch.chosen(limit);
    DrawStream draws(draw.key, 0, draw.hop, batch_id, row.total());
    const int64_t next = first_round(row, draw.size, draws, chosen);
    TakenOut taken = scratch.taken_out(limit);
    require_draws(its_distinct(row, draw.size, draws, chosen, taken, next));
    std::fill_n(counts, chosen.count, int64_t(1));
    return chosen;
}

// One row for all batches: inclusive prefix sums (n) and their guide table, whose positions are trusted.
// O(n + k size) expected time at most, mostly far less than n.
template <class Position>
nb::tuple draw_shared(
    const In<uint64_t>& cumulative, const In<Position>& guide, const In<int64_t>& batch_ids, uint32_t key0, uint32_t key1,
    int64_t hop, int64_t size, bool replace) {
    const DrawArguments draw = draw_arguments(key0, key1, hop, size, replace);
    const PrefixRow sums = prefix_row(cumulative);
    const Slices slices(sums.total(), sums.count);
    require(static_cast<int64_t>(guide.size()) == slices.count + 1, "guide", "is not the guide table of these prefix sums");
    const GuidedRow<Position> row{sums, guide.data(), slices.shift};
    const int64_t num_batches = static_cast<int64_t>(batch_ids.size());
    SampleResult<int64_t> result;
    {
        nb::gil_scoped_release release;
        const bool all = !replace && support_within(row, size);
        const auto draw_batch = [&](DrawScratch& scratch, int64_t i, int64_t* out, int64_t* counts, uint64_t* total, bool* whole) {
            *total = row.total();
            *whole = all;
            const Chosen chosen = draw_guided(row, draw, batch_ids.data()[i], all, scratch, counts);
            std::copy_n(chosen.outcomes, chosen.count, out);
            return chosen.count;
        };
        result = for_batches<int64_t, DrawScratch>(num_batches, [&](int64_t) { return std::min(size, row.count); }, draw_batch);
    }
    return packed(std::move(result));
}

template <class Index>
nb::object shared_numerators(const In<uint64_t>& cumulative, const In<Index>& columns) {
    Buffer<uint64_t> numerators;
    {
        nb::gil_scoped_release release;
        numerators = numerators_at(prefix_row(cumulative), columns.data(), static_cast<int64_t>(columns.size()));
    }
    return to_numpy(std::move(numerators));
}

template <class Index>
void bind_numerators_for(nb::module_& m) {
    m.def("shared_numerators", &shared_numerators<Index>, nb::arg("cumulative"), nb::arg("columns").noconvert(), "N of columns of the row.");
}

template <class Position>
void bind_for(nb::module_& m) {
    m.def("draw_shared", &draw_shared<Position>, nb::arg("cumulative"), nb::arg("guide").noconvert(),
          nb::arg("batch_ids"), nb::arg("key0"), nb::arg("key1"), nb::arg("hop"), nb::arg("size"), nb::arg("replace"));
}

}  // namespace

void bind_column_law_shared(nb::module_& m) {
    m.def("shared_guide", &shared_guide, nb::arg("cumulative"), "The guide table of inclusive prefix sums.");
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
    bind_numerators_for<int32_t>(m);
    bind_numerators_for<int64_t>(m);
}

}  // namespace spsample
