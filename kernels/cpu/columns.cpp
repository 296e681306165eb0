// The entry law and the column law, one draw per batch: draw_entries, draw_columns (docs/law.md, section 3).
//
// In parallel over the k batches. The result is a ColumnSample (spsample/backends/protocol.py).
#include <algorithm>
#include <vector>

#include "column_sample.h"
#include "remaining.h"

namespace spsample {
namespace {

// --- column law ---------------------------------------------------------------------------------------------------------

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

// --- entry law ----------------------------------------------------------------------------------------------------------

template <class Index>
struct EntryScratch {
    DrawScratch draw;
    Remaining<Index> remaining;
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
    Remaining<Index>& remaining = scratch.remaining;
    for (; chosen.count < size; ++draw) {
        if (draw % round == 0) {
            require_draws(draw + round <= draws.count());
            remaining.rebuild(frontier, chosen);
        }
        chosen.add(remaining.column(frontier, draws.below(draw, remaining.total())));
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
// O(entries of the frontiers) for each later round.
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
    m.def("draw_entries", &draw_entries<Index>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          nb::arg("batch_ptr"), nb::arg("vertices"), nb::arg("batch_ids"),
          nb::arg("numerators").none(), nb::arg("key0"), nb::arg("key1"), nb::arg("hop"), nb::arg("size"), nb::arg("replace"));
    m.def("draw_columns", &draw_columns<Index>, nb::arg("indptr"), nb::arg("columns").noconvert(),
          nb::arg("numerators"), nb::arg("batch_ids"), nb::arg("key0"), nb::arg("key1"), nb::arg("hop"),
          nb::arg("size"), nb::arg("replace"));
}

}  // namespace

void bind_columns(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
