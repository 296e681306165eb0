// Sums of numerators by column for one batch, by a hash table.
#pragma once

#include <vector>

#include "numbering.h"
#include "simd_ranks.h"
#include "quantisation.h"

namespace spsample {

// One row of P while the others are still being made.
template <class Index>
struct MergedRow {
    std::vector<Index> columns;
    std::vector<uint64_t> numerators;
    uint64_t total = 0;
};

template <class Index>
struct MergeScratch {
    Numbering<Index> columns;
    std::vector<uint64_t> sums;
    std::vector<Numbered<Index>> order, spare;
};

constexpr int64_t kMergeAhead = 8;

// Inlined: a compiler may leave a call out that does nothing but prefetch.
template <class Index>
SPSAMPLE_INLINE void prefetch_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, int64_t r, int64_t end) {
    if (r + 2 * kMergeAhead < end) SPSAMPLE_PREFETCH(A.indptr + Q.vertices[r + 2 * kMergeAhead]);
    if (r + kMergeAhead < end) SPSAMPLE_PREFETCH(A.indices + A.indptr[Q.vertices[r + kMergeAhead]]);
}

// The merged row of one batch: O(entries of its rows + sort of its distinct columns).
template <class Index, class Weights>
MergedRow<Index> merge_batch(
    const CsrView<Index>& A, const Weights& weights, const SelectorView<Index>& Q, const QuantisationRule& rule, int64_t batch,
    MergeScratch<Index>& scratch) {
    scratch.columns.reset(Q.batch_ptr[batch + 1] - Q.batch_ptr[batch]);
    scratch.sums.clear();
    for (int64_t r = Q.batch_ptr[batch]; r < Q.batch_ptr[batch + 1]; ++r) {
        prefetch_rows(A, Q, r, Q.batch_ptr[batch + 1]);
        for_each_numerator(A, weights, rule, batch, Q.vertices[r], [&](int64_t position, uint64_t numerator) {
            const size_t number = static_cast<size_t>(scratch.columns.number(A.indices[position]));
            if (number == scratch.sums.size()) scratch.sums.push_back(0);
            scratch.sums[number] += numerator;
        });
    }
    ascending(scratch.columns, 0, scratch.order, scratch.spare);
    MergedRow<Index> row;
    row.columns.reserve(scratch.order.size());
    row.numerators.reserve(scratch.order.size());
    for (const Numbered<Index>& column : scratch.order) {
        const uint64_t numerator = raise(scratch.sums[static_cast<size_t>(column.number)], rule.column_power);
        if (numerator == 0) continue;
        row.columns.push_back(column.key);
        row.numerators.push_back(numerator);
        row.total += numerator;
    }
    return row;
}

}  // namespace spsample
