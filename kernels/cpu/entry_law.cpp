// The entry law, one draw per batch: draw_entries; and the counts and entries of which it is composed where rows lie elsewhere:
// entry_counts, locate (docs/law.md, section 3).
//
// In parallel over the k batches. The result of a draw is a ColumnSample (spsample/backends/protocol.py).
#include <algorithm>
#include <optional>
#include <vector>

#include "distinct_draws.h"
#include "entry_law_remaining.h"
#include "numbering.h"
#include "stacking.h"

namespace spsample {
namespace {

constexpr int64_t kRowChunk = 64;

// --- entry_counts and locate -----------------------------------------------------------------------------------------

// Tables of the excluded columns of k batches, or none. The pointers and columns outlive the tables.
template <class Index>
std::optional<BatchTables<Index>> excluded_tables(
    const SelectorView<Index>& Q, const std::optional<SampleColumnsIn<Index>>& excluded) {
    if (!excluded) return std::nullopt;
    const auto& [column_ptr, columns] = *excluded;
    require(static_cast<int64_t>(column_ptr.size()) == Q.num_batches + 1, "exclude", "needs one row per batch");
    require_pointers(column_ptr, static_cast<int64_t>(columns.size()), "exclude");
    require_ids(columns, "exclude");
    return BatchTables<Index>(column_ptr.data(), columns.data(), Q.num_batches);
}

// The selected rows and their entries, counted as far as it takes to know that threads are worth waking.
template <class Index>
int64_t work_of_rows(const CsrView<Index>& A, const SelectorView<Index>& Q) {
    int64_t work = 0;
    for (int64_t r = 0; r < Q.num_rows && work < ThreadsFor::kWorthWaking; ++r) work += 1 + A.degree(Q.vertices[r]);
    return work;
}

// counts: one per stacked row. O(rows), or O(excluded + entries of the rows).
template <class Index>
nb::object entry_counts(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector,
    const std::optional<SampleColumnsIn<Index>>& excluded) {
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    Buffer<int64_t> counts(Q.num_rows);
    {
        nb::gil_scoped_release release;
        const ThreadsFor threads(excluded ? work_of_rows(A, Q) : Q.num_rows);
        auto tables = excluded_tables(Q, excluded);
        parallel_rows(Q.batch_ptr, Q.num_batches, kRowChunk, [&](int64_t batch, int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                counts[r] = A.degree(Q.vertices[r]);
                if (!tables) continue;
                const HashMap<Index, Index> chosen = tables->batch(batch);
                const Index* row = A.indices + A.begin(Q.vertices[r]);
                counts[r] -= std::count_if(row, row + counts[r], [&](Index v) { return chosen.contains(v); });
            }
        });
    }
    return to_numpy(std::move(counts));
}

constexpr const char* kOffsetOutside = "an offset is not below the number of entries of its row";

// Column of the offset-th entry of a row whose column is not in `chosen`. O(degree).
template <class Index>
Index locate_unchosen(const Index* row, int64_t degree, int64_t offset, const HashMap<Index, Index>& chosen) {
    for (int64_t p = 0; p < degree; ++p) {
        if (chosen.contains(row[p])) continue;
        if (offset == 0) return row[p];
        --offset;
    }
    require(false, "offsets", kOffsetOutside);
    return row[0];
}

// columns: one per pair (rows[j], offsets[j]). O(1) each, or O(degree) with excluded columns.
template <class Index>
nb::object locate(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const In<int64_t>& rows,
    const In<int64_t>& offsets, const std::optional<SampleColumnsIn<Index>>& excluded) {
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    require(rows.size() == offsets.size(), "offsets", "needs one element per row");
    const int64_t count = static_cast<int64_t>(rows.size());
    Buffer<Index> columns(count);
    {
        nb::gil_scoped_release release;
        auto tables = excluded_tables(Q, excluded);
        parallel_chunks(count, kRowChunk, [&](int64_t begin, int64_t end) {
            for (int64_t j = begin; j < end; ++j) {
                const int64_t r = rows.data()[j];
                require(r >= 0 && r < Q.num_rows, "rows", "not a stacked row");
                const Index* row = A.indices + A.begin(Q.vertices[r]);
                const int64_t degree = A.degree(Q.vertices[r]);
                const int64_t offset = offsets.data()[j];
                require(offset >= 0 && offset < degree, "offsets", kOffsetOutside);
                const int64_t* last = Q.batch_ptr + Q.num_batches + 1;
                const int64_t batch = std::upper_bound(Q.batch_ptr, last, r) - Q.batch_ptr - 1;
                columns[j] = tables ? locate_unchosen(row, degree, offset, tables->batch(batch)) : row[offset];
            }
        });
    }
    return to_numpy(std::move(columns));
}

// --- draw_entries --------------------------------------------------------------------------------------------------

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
    const int64_t round = kRoundDraws * size;
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
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const std::optional<In<uint64_t>>& q,
    const DrawIn& how) {
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    require(!q || q->size() == selector.vertices.size(), "numerators", "needs one element per selected row");
    const DrawArguments draw = draw_arguments(how);
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
        const auto capacity = [&](int64_t i) { return std::min(draw.size, frontier_entries(frontier(i))); };
        result = for_batches<Index, EntryScratch<Index>>(Q.num_batches, capacity, draw_batch);
    }
    return packed(std::move(result));
}

// --- bindings ------------------------------------------------------------------------------------------------------

template <class Index>
void bind_for(nb::module_& m) {
    m.def("entry_counts", &entry_counts<Index>, nb::arg("A"), nb::arg("Q"), nb::arg("exclude").none(),
          "Number of entries of each selected row outside the excluded columns.");
    m.def("locate", &locate<Index>, nb::arg("A"), nb::arg("Q"), nb::arg("rows"), nb::arg("offsets"), nb::arg("exclude").none(),
          "Columns of the entries at (rows, offsets).");
    m.def("draw_entries", &draw_entries<Index>, nb::arg("A"), nb::arg("Q"), nb::arg("numerators").none(), nb::arg("draw"));
}

}  // namespace

void bind_entry_law(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
