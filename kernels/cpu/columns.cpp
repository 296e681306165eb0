// The entry law and the column law, one draw per batch: draw_entries, draw_columns, draw_shared (docs/law.md, section 3).
//
// In parallel over the k batches. The result is a ColumnSample (spsample/backends/protocol.py).
#include "spsample/column_law.h"

#include <algorithm>
#include <vector>

#include "bindings.h"
#include "scratch.h"

namespace spsample {
namespace {

// --- results ------------------------------------------------------------------------------------------------------------

template <class Index>
struct SampleResult {
    Buffer<int64_t> indptr;  // k + 1
    Buffer<Index> columns;
    Buffer<int64_t> counts;
    Buffer<uint64_t> totals;  // k
    Buffer<bool> whole;       // k
};

template <class Index>
nb::tuple packed(SampleResult<Index>&& result) {
    return nb::make_tuple(
        to_numpy(std::move(result.indptr)), to_numpy(std::move(result.columns)), to_numpy(std::move(result.counts)),
        to_numpy(std::move(result.totals)), to_numpy(std::move(result.whole)));
}

// Arrays with room for capacity(i) columns of batch i; indptr is where they may begin.
template <class Index, class Capacity>
SampleResult<Index> staged(int64_t num_batches, Capacity&& capacity) {
    SampleResult<Index> stage;
    stage.indptr = Buffer<int64_t>(num_batches + 1);
    stage.indptr[0] = 0;
    for (int64_t i = 0; i < num_batches; ++i) stage.indptr[i + 1] = checked_sum(stage.indptr[i], capacity(i));
    stage.columns = Buffer<Index>(stage.indptr[num_batches]);
    stage.counts = Buffer<int64_t>(stage.indptr[num_batches]);
    stage.totals = Buffer<uint64_t>(num_batches);
    stage.whole = Buffer<bool>(num_batches);
    return stage;
}

// Closes the gaps: batch i has found[i] columns. The same arrays where there are no gaps.
template <class Index>
SampleResult<Index> closed_up(SampleResult<Index>&& stage, const std::vector<int64_t>& found) {
    const int64_t num_batches = static_cast<int64_t>(found.size());
    int64_t total = 0;
    for (const int64_t count : found) total += count;
    if (total == stage.indptr[num_batches]) return std::move(stage);
    Buffer<Index> columns(total);
    Buffer<int64_t> counts(total);
    int64_t end = 0;
    for (int64_t i = 0; i < num_batches; ++i) {
        const int64_t begin = stage.indptr[i];
        std::copy_n(stage.columns.data() + begin, found[i], columns.data() + end);
        std::copy_n(stage.counts.data() + begin, found[i], counts.data() + end);
        stage.indptr[i] = end;
        end += found[i];
    }
    stage.indptr[num_batches] = end;
    stage.columns = std::move(columns);
    stage.counts = std::move(counts);
    return std::move(stage);
}

// Runs draw(scratch, i, columns, counts, &total, &whole), which returns how many columns batch i gets, for every batch.
template <class Index, class Scratch, class Capacity, class DrawBatch>
SampleResult<Index> for_batches(int64_t num_batches, Capacity&& capacity, DrawBatch&& draw) {
    SampleResult<Index> stage = staged<Index>(num_batches, capacity);
    std::vector<int64_t> found(static_cast<size_t>(num_batches));
    parallel_chunks(
        num_batches, 1, [] { return Scratch(); },
        [&](Scratch& scratch, int64_t i, int64_t) {
            const int64_t begin = stage.indptr[i];
            found[static_cast<size_t>(i)] = draw(
                scratch, i, stage.columns.data() + begin, stage.counts.data() + begin, &stage.totals[i], &stage.whole[i]);
        });
    return closed_up(std::move(stage), found);
}

// --- column law ---------------------------------------------------------------------------------------------------------

// All positions of positive numerator, ascending.
void take_support(const PrefixRow& row, Chosen& chosen) {
    for (int64_t position = 0; position < row.count; ++position) {
        if (row.numerator(position) > 0) chosen.outcomes[chosen.count++] = position;
    }
}

// Positions drawn from one row and how often. `whole`: take the support (at most draw.size positions).
Chosen draw_positions(
    const PrefixRow& row, const DrawArguments& draw, int64_t batch_id, bool whole, DrawScratch& scratch, int64_t* counts) {
    const int64_t limit = std::min(draw.size, row.count);
    Chosen chosen = scratch.chosen(limit);
    if (row.total() == 0) return chosen;
    DrawStream draws(draw.key, 0, draw.hop, batch_id, row.total());
    if (draw.replace) {
        its_counted(row, draw.size, draws, chosen, counts);
        return chosen;
    }
    if (whole) {
        take_support(row, chosen);
    } else {
        TakenOut taken = scratch.taken_out(limit);
        require_draws(its_distinct(row, draw.size, draws, chosen, taken));
    }
    std::fill_n(counts, chosen.count, int64_t(1));
    return chosen;
}

PrefixRow summed_row(const uint64_t* numerators, int64_t count, DrawScratch& scratch) {
    uint64_t* inclusive = scratch.prefix(count);
    uint64_t sum = 0;
    for (int64_t position = 0; position < count; ++position) {
        sum += numerators[position];
        inclusive[position] = sum;
    }
    return {inclusive, count};
}

// P: k rows of columns (ascending) and numerators, indptr k + 1. O(entries of P + k size log d) expected time.
template <class Index>
nb::tuple draw_columns(
    const In<int64_t>& indptr, const In<Index>& columns, const In<uint64_t>& numerators, const In<int64_t>& batch_ids,
    uint32_t key0, uint32_t key1, int64_t hop, int64_t size, bool replace) {
    require(numerators.size() == columns.size(), "numerators", "needs one element per column");
    require(batch_ids.size() + 1 == indptr.size(), "batch_ids", "needs one element per row of P");
    require_pointers(indptr, static_cast<int64_t>(columns.size()), "indptr");
    const DrawArguments draw = draw_arguments(key0, key1, hop, size, replace);
    const int64_t num_batches = static_cast<int64_t>(batch_ids.size());
    const int64_t* ptr = indptr.data();
    SampleResult<Index> result;
    {
        nb::gil_scoped_release release;
        const auto draw_batch = [&](DrawScratch& scratch, int64_t i, Index* out, int64_t* counts, uint64_t* total, bool* whole) {
            const PrefixRow row = summed_row(numerators.data() + ptr[i], ptr[i + 1] - ptr[i], scratch);
            *total = row.total();
            *whole = !replace && support_within(row, size);
            const Chosen chosen = draw_positions(row, draw, batch_ids.data()[i], *whole, scratch, counts);
            for (int64_t j = 0; j < chosen.count; ++j) out[j] = columns.data()[ptr[i] + chosen.outcomes[j]];
            return chosen.count;
        };
        const auto capacity = [&](int64_t i) { return std::min(size, ptr[i + 1] - ptr[i]); };
        result = for_batches<Index, DrawScratch>(num_batches, capacity, draw_batch);
    }
    return packed(std::move(result));
}

// One row for all batches, as inclusive prefix sums (n). O(n + k size log n) expected time at most, mostly far less than n.
nb::tuple draw_shared(
    const In<uint64_t>& cumulative, const In<int64_t>& batch_ids, uint32_t key0, uint32_t key1, int64_t hop, int64_t size,
    bool replace) {
    const DrawArguments draw = draw_arguments(key0, key1, hop, size, replace);
    const PrefixRow row{cumulative.data(), static_cast<int64_t>(cumulative.size())};
    const int64_t num_batches = static_cast<int64_t>(batch_ids.size());
    SampleResult<int64_t> result;
    {
        nb::gil_scoped_release release;
        const bool all = !replace && support_within(row, size);
        const auto draw_batch = [&](DrawScratch& scratch, int64_t i, int64_t* out, int64_t* counts, uint64_t* total, bool* whole) {
            *total = row.total();
            *whole = all;
            const Chosen chosen = draw_positions(row, draw, batch_ids.data()[i], all, scratch, counts);
            std::copy_n(chosen.outcomes, chosen.count, out);
            return chosen.count;
        };
        result = for_batches<int64_t, DrawScratch>(num_batches, [&](int64_t) { return std::min(size, row.count); }, draw_batch);
    }
    return packed(std::move(result));
}

// --- entry law ----------------------------------------------------------------------------------------------------------

template <class Index>
struct EntryScratch {
    DrawScratch draw;
    std::vector<int64_t> ptr;
    std::vector<Index> columns;
    std::vector<uint64_t> inclusive;

    Unchosen<Index> unchosen(int64_t rows, int64_t entries) {
        return {grown(ptr, rows + 1), grown(columns, entries), grown(inclusive, rows)};
    }
};

// The first `size` distinct columns; there must be more. `totals`: frontier_totals.
template <class Index>
void entries_distinct(
    const Frontier<Index>& frontier, const PrefixRow& totals, int64_t size, DrawStream& draws, Chosen& chosen,
    EntryScratch<Index>& scratch) {
    const int64_t round = 4 * size;
    int64_t draw = 0;
    for (; chosen.count < size && draw < round; ++draw) {
        chosen.add(frontier_column(frontier, totals, draws.below(draw, totals.total())));
    }
    if (chosen.count == size) return;
    Unchosen<Index> unchosen = scratch.unchosen(frontier.count, frontier_entries(frontier));
    for (; chosen.count < size; ++draw) {
        if (draw % round == 0) {
            require_draws(draw + round <= draws.count());
            unchosen.rebuild(frontier, chosen);
        }
        chosen.add(unchosen.column(frontier, draws.below(draw, unchosen.inclusive[frontier.count - 1])));
    }
}

// `size` draws; distinct columns in the order first drawn, and how often each.
template <class Index>
void entries_counted(
    const Frontier<Index>& frontier, const PrefixRow& totals, int64_t size, DrawStream& draws, Chosen& chosen, int64_t* counts) {
    for (int64_t draw = 0; draw < size; ++draw) {
        const int64_t known = chosen.count;
        const int64_t number = chosen.add(frontier_column(frontier, totals, draws.below(draw, totals.total())));
        counts[number] = number < known ? counts[number] + 1 : 1;
    }
}

// Draws for one batch. Returns the columns; `counts` how often each, `total` T, `whole` whether the support was taken.
template <class Index>
Chosen draw_frontier(
    const Frontier<Index>& frontier, const DrawArguments& draw, int64_t batch_id, EntryScratch<Index>& scratch,
    int64_t* counts, uint64_t* total, bool* whole) {
    uint64_t* inclusive = scratch.draw.prefix(frontier.count);
    frontier_totals(frontier, inclusive);
    const PrefixRow totals{inclusive, frontier.count};
    *total = totals.total();
    *whole = false;
    const int64_t entries = frontier_entries(frontier);
    DrawStream draws(draw.key, 0, draw.hop, batch_id, *total);
    if (draw.replace) {
        Chosen chosen = scratch.draw.chosen(std::min(draw.size, entries));
        if (*total > 0) entries_counted(frontier, totals, draw.size, draws, chosen, counts);
        return chosen;
    }
    Chosen found = scratch.draw.chosen(draw.size < entries ? draw.size + 1 : entries);
    *whole = support_within(frontier, draw.size, found);
    if (*whole) {
        sort_ascending(found.outcomes, found.count);
    } else {
        found = scratch.draw.chosen(draw.size);
        entries_distinct(frontier, totals, draw.size, draws, found, scratch);
    }
    std::fill_n(counts, found.count, int64_t(1));
    return found;
}

// q: (m,) numerators of the selected rows, or None for 1. Expected time O(m + k size) where few draws repeat; at most
// O(entries of the frontiers) for each round, memory then O(entries of a frontier) per thread.
template <class Index>
nb::tuple draw_entries(
    const In<int64_t>& indptr, const In<Index>& indices, const In<int64_t>& batch_ptr, const In<Index>& vertices,
    const In<int64_t>& batch_ids, const std::optional<In<uint64_t>>& q, uint32_t key0, uint32_t key1, int64_t hop,
    int64_t size, bool replace) {
    const CsrView<Index> A = csr_view(indptr, indices);
    const SelectorView<Index> Q = selector_view(batch_ptr, vertices, batch_ids, A.num_rows);
    require(!q || q->size() == vertices.size(), "numerators", "needs one element per selected row");
    const DrawArguments draw = draw_arguments(key0, key1, hop, size, replace);
    SampleResult<Index> result;
    {
        nb::gil_scoped_release release;
        const auto frontier = [&](int64_t i) {
            const int64_t begin = Q.batch_ptr[i];
            return Frontier<Index>{A, Q.vertices + begin, q ? q->data() + begin : nullptr, Q.batch_ptr[i + 1] - begin};
        };
        const auto draw_batch = [&](EntryScratch<Index>& scratch, int64_t i, Index* out, int64_t* counts, uint64_t* total, bool* whole) {
            const Chosen chosen = draw_frontier(frontier(i), draw, Q.batch_ids[i], scratch, counts, total, whole);
            for (int64_t j = 0; j < chosen.count; ++j) out[j] = static_cast<Index>(chosen.outcomes[j]);
            return chosen.count;
        };
        const auto capacity = [&](int64_t i) { return std::min(size, frontier_entries(frontier(i))); };
        result = for_batches<Index, EntryScratch<Index>>(Q.num_batches, capacity, draw_batch);
    }
    return packed(std::move(result));
}

// --- bindings -----------------------------------------------------------------------------------------------------------

template <class Index>
void bind_for(nb::module_& m) {
    m.def("draw_entries", &draw_entries<Index>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(), nb::arg("batch_ids").noconvert(),
          nb::arg("numerators").none(), nb::arg("key0"), nb::arg("key1"), nb::arg("hop"), nb::arg("size"), nb::arg("replace"));
    m.def("draw_columns", &draw_columns<Index>, nb::arg("indptr").noconvert(), nb::arg("columns").noconvert(),
          nb::arg("numerators").noconvert(), nb::arg("batch_ids").noconvert(), nb::arg("key0"), nb::arg("key1"), nb::arg("hop"),
          nb::arg("size"), nb::arg("replace"));
}

}  // namespace

void bind_columns(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
    m.def("draw_shared", &draw_shared, nb::arg("cumulative").noconvert(), nb::arg("batch_ids").noconvert(), nb::arg("key0"),
          nb::arg("key1"), nb::arg("hop"), nb::arg("size"), nb::arg("replace"));
}

}  // namespace spsample
