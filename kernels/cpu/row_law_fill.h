// What the row-law kernels share: the arrays of their result, and the plain way to fill them.
//
// The plain way works in two passes over the m stacked rows of k batches, in parallel over chunks of rows: count the entries
// of each row, prefix sums per batch, fill. The result is a StackedRows (spsample/backends/protocol.py).
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "bindings.h"
#include "scratch.h"

namespace spsample {

constexpr int64_t kRowChunk = 1024;  // a smaller loop is not worth waking a thread for
constexpr int64_t kGroup = 32;
constexpr int64_t kAhead = 16;
constexpr int64_t kPointersAtOnce = 1 << 14;  // rows
constexpr int64_t kCacheLine = 64;

// --- results ------------------------------------------------------------------------------------------------------------

template <class Index>
struct RowsResult {
    Buffer<int64_t> entry_ptr;  // k + 1
    Buffer<int64_t> indptr;     // m + k, from 0 in each batch
    Buffer<Index> columns;
    Buffer<int64_t> positions;  // empty where not asked for
    bool with_positions = false;
    Buffer<int64_t> batch_begin;  // k, where the entries of batches are not stacked: where each batch's begin

    // Where the entries of batch i begin.
    int64_t begin(int64_t i) const { return batch_begin.size() > 0 ? batch_begin[i] : entry_ptr[i]; }
    // Where the entries of stacked row r, of batch i, begin.
    int64_t offset(int64_t r, int64_t i) const { return begin(i) + indptr[r + i]; }
};

// Makes `columns` and `positions` of a result whose `entry_ptr` is known, and `batch_begin` where its batches are not stacked.
template <class Index>
using MakeRoom = std::function<void(RowsResult<Index>&)>;

// Room for the entries of all batches, stacked.
template <class Index>
void make_stacked_room(RowsResult<Index>& result) {
    const int64_t num_entries = result.entry_ptr[result.entry_ptr.size() - 1];
    result.columns = Buffer<Index>(num_entries);
    result.positions = Buffer<int64_t>(result.with_positions ? num_entries : 0);
}

template <class Index>
nb::tuple packed(RowsResult<Index>&& result) {
    nb::object positions = nb::none();
    if (result.with_positions) positions = nb::cast(to_numpy(std::move(result.positions)));
    return nb::make_tuple(
        to_numpy(std::move(result.entry_ptr)), to_numpy(std::move(result.indptr)), to_numpy(std::move(result.columns)), positions);
}

// Runs `sample` without the GIL and packs its result.
template <class Index, class Sample>
nb::tuple run(Sample&& sample) {
    RowsResult<Index> result;
    {
        nb::gil_scoped_release release;
        result = sample();
    }
    return packed(std::move(result));
}

// --- reading ahead ------------------------------------------------------------------------------------------------------

// Brings the bytes from `begin` up to `end` to the second-level cache. By loads: the processor drops prefetches that come
// faster than the memory answers, and looks further ahead of loads that come in order.
// Both halves side by side: within each page the processor looks ahead by itself.
inline void read_through(const void* begin, const void* end) {
    const volatile char* first = static_cast<const volatile char*>(begin);
    const volatile char* const last = static_cast<const volatile char*>(end);
    const volatile char* const middle = first + (last - first) / 2;
    for (const volatile char* second = middle; first < middle; first += kCacheLine, second += kCacheLine) {
        (void)*first;
        (void)*second;
    }
    if (begin < end) (void)last[-1];
}

// --- walking stacked rows -----------------------------------------------------------------------------------------------

// Calls body(r, i) for the stacked rows [begin, end), i the batch of row r.
template <class Index, class Body>
void for_rows(const SelectorView<Index>& Q, int64_t begin, int64_t end, Body&& body) {
    const int64_t* last = Q.batch_ptr + Q.num_batches + 1;
    int64_t batch = std::upper_bound(Q.batch_ptr, last, begin) - Q.batch_ptr - 1;
    for (int64_t r = begin; r < end; ++r) {
        while (r >= Q.batch_ptr[batch + 1]) ++batch;
        body(r, batch);
    }
}

// The row behind the last one of the batch of stacked row r.
template <class Index>
int64_t end_of_batch(const SelectorView<Index>& Q, int64_t r) {
    return *std::upper_bound(Q.batch_ptr, Q.batch_ptr + Q.num_batches + 1, r);
}

// Room for the row pointers of all batches.
template <class Index>
RowsResult<Index> unfilled_pointers(const SelectorView<Index>& Q, bool with_positions) {
    RowsResult<Index> result;
    result.with_positions = with_positions;
    result.indptr = Buffer<int64_t>(checked_sum(Q.num_rows, Q.num_batches));
    result.entry_ptr = Buffer<int64_t>(Q.num_batches + 1);
    return result;
}

// Row pointers from row lengths, which stand in indptr[r + i + 1]; batches share nothing. O(m).
template <class Index>
void accumulate_pointers(const SelectorView<Index>& Q, RowsResult<Index>& result) {
    const int64_t batches = std::max<int64_t>(1, kPointersAtOnce / (Q.num_rows / std::max<int64_t>(1, Q.num_batches) + 1));
    parallel_chunks(Q.num_batches, batches, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            int64_t* const pointers = result.indptr.data() + Q.batch_ptr[i] + i;
            const int64_t rows = Q.batch_ptr[i + 1] - Q.batch_ptr[i];
            pointers[0] = 0;
            for (int64_t r = 0; r < rows; ++r) pointers[r + 1] = checked_sum(pointers[r + 1], pointers[r]);
        }
    });
}

// The arrays for the entries that the row pointers tell of.
template <class Index>
void add_entries(const SelectorView<Index>& Q, RowsResult<Index>& result, const MakeRoom<Index>& make_room = make_stacked_room<Index>) {
    result.entry_ptr[0] = 0;
    for (int64_t i = 0; i < Q.num_batches; ++i) {
        result.entry_ptr[i + 1] = checked_sum(result.entry_ptr[i], result.indptr[Q.batch_ptr[i + 1] + i]);
    }
    make_room(result);
}

// The counts of all rows, count(vertex), as pointers per batch; ahead(vertex) asks for what a later count reads. O(m), in parallel
// over rows.
template <class Index, class Count, class Ahead>
void count_rows(const SelectorView<Index>& Q, RowsResult<Index>& result, Count&& count, Ahead&& ahead) {
    parallel_chunks(Q.num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            if (r + kAhead < end) ahead(Q.vertices[r + kAhead]);
            result.indptr[r + i + 1] = count(Q.vertices[r]);
        });
    });
    accumulate_pointers(Q, result);
}

// The same in one pass, in parallel over batches.
template <class Index, class Count, class Ahead>
void count_batches(const SelectorView<Index>& Q, RowsResult<Index>& result, Count&& count, Ahead&& ahead) {
    parallel_chunks(Q.num_batches, 1, [&](int64_t i, int64_t) {
        const Index* vertices = Q.vertices + Q.batch_ptr[i];
        int64_t* pointers = result.indptr.data() + Q.batch_ptr[i] + i;
        const int64_t rows = Q.batch_ptr[i + 1] - Q.batch_ptr[i];
        int64_t sum = 0;
        for (int64_t r = 0; r < rows; ++r) {
            pointers[r] = sum;
            if (r + kAhead < rows) ahead(vertices[r + kAhead]);
            sum = checked_sum(sum, count(vertices[r]));
        }
        pointers[rows] = sum;
    });
}

// Counts per row, count(vertex), as pointers per batch, and the arrays for the entries; ahead(vertex) asks for what a later count
// reads. O(m).
template <class Index, class Count, class Ahead>
RowsResult<Index> laid_out(
    const SelectorView<Index>& Q, bool with_positions, Count&& count, Ahead&& ahead,
    const MakeRoom<Index>& make_room = make_stacked_room<Index>) {
    RowsResult<Index> result = unfilled_pointers(Q, with_positions);
    if (Q.num_batches >= thread_limit()) {
        count_batches(Q, result, count, ahead);
    } else {
        count_rows(Q, result, count, ahead);
    }
    add_entries(Q, result, make_room);
    return result;
}

// The same for counts that read row pointers of A.
template <class Index, class Count>
RowsResult<Index> laid_out(
    const CsrView<Index>& A, const SelectorView<Index>& Q, bool with_positions, Count&& count,
    const MakeRoom<Index>& make_room = make_stacked_room<Index>) {
    return laid_out(Q, with_positions, count, [&](int64_t vertex) { SPSAMPLE_PREFETCH(A.indptr + vertex); }, make_room);
}

// Fills columns (and positions) with what `pick` draws: pick(scratch, row, batch_id, out) writes a row's positions in
// A to `out`. Works in groups of rows whose entries lie side by side, so that the loads of one group's columns are under way at the same time.
template <class Index, class Pick>
void fill_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, RowsResult<Index>& result, Pick&& pick) {
    struct Scratch {
        DrawScratch draw;
        std::vector<int64_t> positions;
    };
    const auto fill_group = [&](Scratch& scratch, int64_t begin, int64_t end) {
        int64_t first = -1, count = 0;
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            if (first < 0) first = result.offset(r, i);
            count = result.offset(r, i) - first + result.indptr[r + i + 1] - result.indptr[r + i];
        });
        int64_t* out = result.with_positions ? result.positions.data() + first : grown(scratch.positions, count);
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            const int64_t row_begin = result.offset(r, i) - first;
            const int64_t row_end = row_begin + result.indptr[r + i + 1] - result.indptr[r + i];
            if (row_begin == row_end) return;
            pick(scratch.draw, static_cast<int64_t>(Q.vertices[r]), Q.batch_ids[i], out + row_begin);
            for (int64_t e = row_begin; e < row_end; ++e) SPSAMPLE_PREFETCH(A.indices + out[e]);
        });
        for (int64_t e = 0; e < count; ++e) result.columns[first + e] = A.indices[out[e]];
    };
    parallel_chunks(
        Q.num_rows, kRowChunk, [] { return Scratch(); },
        [&](Scratch& scratch, int64_t begin, int64_t end) {
            for (int64_t group = begin, next; group < end; group = next) {
                next = std::min(end, group + kGroup);
                if (result.batch_begin.size() > 0) next = std::min(next, end_of_batch(Q, group));
                fill_group(scratch, group, next);
            }
        });
}

}  // namespace spsample
