// Whole rows of A (fanout -1; docs/law.md, section 3): where those of k batches lie, walking them, and copying them out.
#pragma once

#include <algorithm>

#include "copy_runs.h"
#include "row_law_fill.h"

namespace spsample {

constexpr int64_t kFetchedRows = 16;           // rows ahead of the present one whose beginnings are asked for
constexpr int64_t kFetchedBytes = 1 << 10;     // of a row; the processor sees by itself how a longer one goes on
constexpr int64_t kCopiedAtOnce = 1 << 16;     // entries

// Result arrays of the rows of Q, and where each row begins in A.
template <class Index>
struct WholeRows {
    RowsResult<Index> result;
    Buffer<int64_t> starts;  // m
};

// The arrays with all but the entries. A's row pointers are read once, in Q's order. O(m).
template <class Index>
WholeRows<Index> laid_out_whole(const CsrView<Index>& A, const SelectorView<Index>& Q, bool with_positions) {
    WholeRows<Index> rows{unfilled_pointers(Q, with_positions), Buffer<int64_t>(Q.num_rows)};
    RowsResult<Index>& result = rows.result;
    parallel_chunks(Q.num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            if (r + kAhead < end) SPSAMPLE_PREFETCH(A.indptr + Q.vertices[r + kAhead]);
            rows.starts[r] = A.begin(Q.vertices[r]);
            result.indptr[r + i + 1] = A.degree(Q.vertices[r]);
        });
    });
    accumulate_pointers(Q, result);
    add_entries(Q, result);
    return rows;
}

// The rows of one batch: row r is indices[starts[r]] and following, pointers[r + 1] - pointers[r] entries.
template <class Index>
struct BatchRows {
    const Index* indices;
    const int64_t* starts;
    const int64_t* pointers;
    int64_t num_rows;

    BatchRows(const CsrView<Index>& A, const SelectorView<Index>& Q, const WholeRows<Index>& rows, int64_t i)
        : indices(A.indices), starts(rows.starts.data() + Q.batch_ptr[i]),
          pointers(rows.result.indptr.data() + Q.batch_ptr[i] + i), num_rows(Q.batch_ptr[i + 1] - Q.batch_ptr[i]) {}

    int64_t num_entries() const { return pointers[num_rows]; }

    // Calls body(run, first, count) for the pieces of rows that make up the batch's entries [begin, end), row by row, each asked for
    // some rows before its turn.
    template <class Body>
    void each_run(int64_t begin, int64_t end, Body&& body) const {
        int64_t r = std::upper_bound(pointers, pointers + num_rows + 1, begin) - pointers - 1;
        for (int64_t ahead = r; ahead < std::min(r + kFetchedRows, num_rows); ++ahead) fetch(ahead);
        for (int64_t e = begin; e < end; ++r) {
            if (r + kFetchedRows < num_rows) fetch(r + kFetchedRows);
            const int64_t stop = std::min(end, pointers[r + 1]);
            if (e < stop) body(indices + starts[r] + (e - pointers[r]), e, stop - e);
            e = stop;
        }
    }

private:
    // Asks for the first lines of a row.
    void fetch(int64_t r) const {
        const char* const begin = reinterpret_cast<const char*>(indices + starts[r]);
        const int64_t bytes = std::min((pointers[r + 1] - pointers[r]) * static_cast<int64_t>(sizeof(Index)), kFetchedBytes);
        const int64_t line = -static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % kCacheLine);  // where the first one begins
        for (int64_t at = line; at < bytes; at += kCacheLine) SPSAMPLE_PREFETCH_NEAR(begin + at);
    }
};

// first, first + 1, ...
inline void count_up(int64_t first, int64_t count, int64_t* out) {
    for (int64_t e = 0; e < count; ++e) out[e] = first + e;
}

// Copies entries [begin, end) of batch i, their columns as vertices; positions where asked for. `copy` is one of run_functions().
template <class Index>
void copy_entries(
    const CsrView<Index>& A, const SelectorView<Index>& Q, WholeRows<Index>& rows, int64_t i, int64_t begin, int64_t end, CopyRun copy) {
    RowsResult<Index>& result = rows.result;
    Index* const columns = result.columns.data() + result.entry_ptr[i];
    int64_t* const positions = result.with_positions ? result.positions.data() + result.entry_ptr[i] : nullptr;
    BatchRows<Index>(A, Q, rows, i).each_run(begin, end, [&](const Index* run, int64_t first, int64_t count) {
        copy(columns + first, run, count * static_cast<int64_t>(sizeof(Index)));
        if (positions) count_up(run - A.indices, count, positions + first);
    });
}

// Copies the entries of one batch, which will be in the cache.
template <class Index>
void copy_batch(const CsrView<Index>& A, const SelectorView<Index>& Q, WholeRows<Index>& rows, int64_t i) {
    copy_entries(A, Q, rows, i, 0, rows.result.entry_ptr[i + 1] - rows.result.entry_ptr[i], run_functions().copy);
}

// Copies all rows. Threads share the entries, not the rows, so that one long row is no thread's fate.
template <class Index>
void copy_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, WholeRows<Index>& rows) {
    const int64_t* const entry_ptr = rows.result.entry_ptr.data();
    const int64_t num_entries = entry_ptr[Q.num_batches];
    const CopyRun copy = copy_into(num_entries * static_cast<int64_t>(sizeof(Index)));
    parallel_chunks(num_entries, kCopiedAtOnce, [&](int64_t begin, int64_t end) {
        int64_t i = std::upper_bound(entry_ptr, entry_ptr + Q.num_batches + 1, begin) - entry_ptr - 1;
        for (int64_t at = begin; at < end; at = entry_ptr[++i]) {
            copy_entries(A, Q, rows, i, at - entry_ptr[i], std::min(end, entry_ptr[i + 1]) - entry_ptr[i], copy);
        }
        fence_streams();
    });
}

}  // namespace spsample
