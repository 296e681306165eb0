// k stacked sparse matrices, one per batch: views of the caller's, and the pointers of new ones.
//
// Batch i owns the rows batch_ptr[i] .. batch_ptr[i + 1] - 1, the entries entry_ptr[i] .. entry_ptr[i + 1] - 1, and the
// slice of indptr from batch_ptr[i] + i to batch_ptr[i + 1] + i, both ends included, which starts at 0 in every batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "bindings.h"

namespace spsample {

template <class Index>
struct StackedView {
    const int64_t* entry_ptr;
    const int64_t* indptr;
    const Index* columns;
    const int64_t* positions;  // null where not asked for
    int64_t num_entries;

    // The entries of the stacked row `row`, which is one of `batch`.
    int64_t begin(int64_t batch, int64_t row) const { return entry_ptr[batch] + indptr[row + batch]; }
    int64_t end(int64_t batch, int64_t row) const { return entry_ptr[batch] + indptr[row + batch + 1]; }
};

// Checks all lengths and pointers against the batches of Q (O(rows)).
template <class Index>
StackedView<Index> stacked_view(const In<int64_t>& batch_ptr, const RowsIn<Index>& rows_in) {
    const auto& [entry_ptr, indptr, columns, positions] = rows_in;
    const int64_t num_batches = static_cast<int64_t>(batch_ptr.size()) - 1;
    const int64_t num_rows = batch_ptr.data()[num_batches];
    const int64_t num_entries = static_cast<int64_t>(columns.size());
    require(entry_ptr.size() == batch_ptr.size(), "entry_ptr", "needs one element per batch and one more");
    require_pointers(entry_ptr, num_entries, "entry_ptr");
    const int64_t num_pointers = checked_sum(num_rows, num_batches);
    require(static_cast<int64_t>(indptr.size()) == num_pointers, "indptr", "needs one element per row and per batch");
    require(!positions || positions->size() == columns.size(), "positions", "needs one element per entry");
    for (int64_t i = 0; i < num_batches; ++i) {
        const int64_t* p = indptr.data() + batch_ptr.data()[i] + i;
        const int64_t rows = batch_ptr.data()[i + 1] - batch_ptr.data()[i];
        require(p[0] == 0, "indptr", "must start at 0 in every batch");
        const int64_t entries = entry_ptr.data()[i + 1] - entry_ptr.data()[i];
        require(p[rows] == entries, "indptr", "must end at the batch's number of entries");
        for (int64_t r = 0; r < rows; ++r) require(p[r] <= p[r + 1], "indptr", "must not descend");
    }
    return {entry_ptr.data(), indptr.data(), columns.data(), positions ? positions->data() : nullptr, num_entries};
}

// Where weights are looked up by position: positions must be there and lie in A.
template <class Index>
void require_positions(const StackedView<Index>& rows, bool weighted, int64_t num_graph_entries) {
    if (!weighted) return;
    require(rows.positions != nullptr || rows.num_entries == 0, "positions", "are needed where A has weights");
    for (int64_t e = 0; e < rows.num_entries; ++e) {
        const bool inside = static_cast<uint64_t>(rows.positions[e]) < static_cast<uint64_t>(num_graph_entries);
        require(inside, "positions", "an entry's position is not one of A's");
    }
}

struct StackedPointers {
    Buffer<int64_t> entry_ptr;
    Buffer<int64_t> indptr;
};

// entry_ptr and indptr of new stacked rows, from the number of entries of each; O(rows).
inline StackedPointers stacked_pointers(const int64_t* batch_ptr, int64_t num_batches, const int64_t* counts) {
    StackedPointers pointers{Buffer<int64_t>(num_batches + 1), Buffer<int64_t>(batch_ptr[num_batches] + num_batches)};
    pointers.entry_ptr[0] = 0;
    for (int64_t i = 0; i < num_batches; ++i) {
        int64_t sum = 0;
        for (int64_t r = batch_ptr[i]; r < batch_ptr[i + 1]; ++r) {
            pointers.indptr[r + i] = sum;
            sum = checked_sum(sum, counts[r]);
        }
        pointers.indptr[batch_ptr[i + 1] + i] = sum;
        pointers.entry_ptr[i + 1] = checked_sum(pointers.entry_ptr[i], sum);
    }
    return pointers;
}

// --- loops over stacked rows -----------------------------------------------------------------------------------------

// Calls body(batch, begin, end) for the runs of the stacked rows [begin, end) that lie in one batch, in order.
template <class Body>
void for_batches_of(const int64_t* batch_ptr, int64_t num_batches, int64_t begin, int64_t end, Body&& body) {
    const int64_t* after = std::upper_bound(batch_ptr, batch_ptr + num_batches + 1, begin);
    for (int64_t batch = after - batch_ptr - 1; begin < end; ++batch) {
        const int64_t stop = std::min(end, batch_ptr[batch + 1]);
        if (begin < stop) body(batch, begin, stop);
        begin = stop;
    }
}

// Calls body(scratch, batch, begin, end) for runs of stacked rows that lie in one batch; together they cover every row.
template <class MakeScratch, class Body>
void parallel_rows(
    const int64_t* batch_ptr, int64_t num_batches, int64_t chunk, MakeScratch&& make_scratch, Body&& body) {
    parallel_chunks(batch_ptr[num_batches], chunk, make_scratch, [&](auto& scratch, int64_t begin, int64_t end) {
        for_batches_of(batch_ptr, num_batches, begin, end, [&](int64_t batch, int64_t first, int64_t last) {
            body(scratch, batch, first, last);
        });
    });
}

// Without scratch: body(batch, begin, end).
template <class Body>
void parallel_rows(const int64_t* batch_ptr, int64_t num_batches, int64_t chunk, Body&& body) {
    parallel_rows(
        batch_ptr, num_batches, chunk, [] { return 0; },
        [&](int, int64_t batch, int64_t begin, int64_t end) { body(batch, begin, end); });
}

}  // namespace spsample
