// ColumnSamples (spsample/backends/protocol.py) in the making: their arrays, and the column law for one row.
#pragma once

#include <algorithm>
#include <vector>

#include "bindings.h"
#include "parallel.h"
#include "scratch.h"
#include "spsample/column_law.h"

namespace spsample {

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
SampleResult<Index> reserved(int64_t num_batches, Capacity&& capacity) {
    SampleResult<Index> result;
    result.indptr = Buffer<int64_t>(num_batches + 1);
    result.indptr[0] = 0;
    for (int64_t i = 0; i < num_batches; ++i) result.indptr[i + 1] = checked_sum(result.indptr[i], capacity(i));
    result.columns = Buffer<Index>(result.indptr[num_batches]);
    result.counts = Buffer<int64_t>(result.indptr[num_batches]);
    result.totals = Buffer<uint64_t>(num_batches);
    result.whole = Buffer<bool>(num_batches);
    return result;
}

// Closes the gaps: batch i has found[i] columns. The same arrays where there are no gaps.
template <class Index>
SampleResult<Index> closed_up(SampleResult<Index>&& result, const std::vector<int64_t>& found) {
    const int64_t num_batches = static_cast<int64_t>(found.size());
    int64_t total = 0;
    for (const int64_t count : found) total += count;
    if (total == result.indptr[num_batches]) return std::move(result);
    Buffer<Index> columns(total);
    Buffer<int64_t> counts(total);
    int64_t end = 0;
    for (int64_t i = 0; i < num_batches; ++i) {
        const int64_t begin = result.indptr[i];
        std::copy_n(result.columns.data() + begin, found[i], columns.data() + end);
        std::copy_n(result.counts.data() + begin, found[i], counts.data() + end);
        result.indptr[i] = end;
        end += found[i];
    }
    result.indptr[num_batches] = end;
    result.columns = std::move(columns);
    result.counts = std::move(counts);
    return std::move(result);
}

// Runs draw(scratch, i, columns, counts, &total, &whole), which returns how many columns batch i gets, for every batch.
template <class Index, class Scratch, class Capacity, class DrawBatch>
SampleResult<Index> for_batches(int64_t num_batches, Capacity&& capacity, DrawBatch&& draw) {
    constexpr int64_t kDrawWork = 32;  // as elements of a loop
    SampleResult<Index> result = reserved<Index>(num_batches, capacity);
    const ThreadsFor threads(kDrawWork * result.indptr[num_batches]);
    std::vector<int64_t> found(static_cast<size_t>(num_batches));
    parallel_chunks(
        num_batches, 1, [] { return Scratch(); },
        [&](Scratch& scratch, int64_t i, int64_t) {
            const int64_t begin = result.indptr[i];
            found[static_cast<size_t>(i)] = draw(
                scratch, i, result.columns.data() + begin, result.counts.data() + begin, &result.totals[i], &result.whole[i]);
        });
    return closed_up(std::move(result), found);
}

// --- column law ---------------------------------------------------------------------------------------------------------

// All positions of positive numerator, ascending.
template <class Row>
void take_support(const Row& row, Chosen& chosen) {
    for (int64_t p = row.next_positive(0); p < row.count; p = row.next_positive(p + 1)) chosen.outcomes[chosen.count++] = p;
}

// Positions drawn from one row and how often. `whole`: take the support (at most draw.size positions).
template <class Row>
Chosen draw_positions(
    const Row& row, const DrawArguments& draw, int64_t batch_id, bool whole, DrawScratch& scratch, int64_t* counts) {
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

inline PrefixRow summed_row(const uint64_t* numerators, int64_t count, DrawScratch& scratch) {
    uint64_t* inclusive = scratch.prefix(count);
    uint64_t sum = 0;
    for (int64_t position = 0; position < count; ++position) {
        sum += numerators[position];
        inclusive[position] = sum;
    }
    return {inclusive, count};
}

}  // namespace spsample
