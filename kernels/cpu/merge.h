// Numerators of A's entries under a rule (docs/law.md, section 2), and their sums by column for one batch, by a hash table.
#pragma once

#include <type_traits>
#include <vector>

#include "bindings.h"
#include "numbering.h"
#include "quantize_many.h"

namespace spsample {

// How weights become integers: with K = shift and entry power a = power, or 1 for every entry without shifts.
struct Rule {
    const int64_t* shifts;  // num_batches elements, or null
    int32_t power;
    int32_t column_power;
};

inline uint64_t raise(uint64_t sum, int32_t column_power) { return column_power == 2 ? sum * sum : sum; }

// Calls body(position, numerator) for the entries of a row of A in order. Rows whose entries weigh the same (all but
// those of ArrayWeights) are quantised once.
template <class Index, class Weights, class Body>
void for_each_numerator(
    const CsrView<Index>& A, const Weights& weights, const Rule& rule, int64_t batch, int64_t row, Body&& body) {
    const int64_t begin = A.indptr[row];
    const int64_t end = A.indptr[row + 1];
    if (rule.shifts == nullptr) {
        for (int64_t p = begin; p < end; ++p) body(p, uint64_t(1));
        return;
    }
    const int64_t shift = rule.shifts[batch];
    if constexpr (std::is_same_v<Weights, UnitWeights> || std::is_same_v<Weights, RowNormalizedWeights>) {
        const uint64_t numerator = begin < end ? quantize(weights(begin, end - begin), shift, rule.power) : 0;
        for (int64_t p = begin; p < end; ++p) body(p, numerator);
    } else {
        for_each_quantized(weights.data, begin, end, shift, rule.power, body);
    }
}

// Checks the rule and that it has `count` shifts, or none.
inline Rule make_rule(const std::optional<In<int64_t>>& shifts, int power, int column_power, int64_t count) {
    require(power == 1 || power == 2, "power", "must be 1 or 2");
    require(column_power == 1 || column_power == 2, "column_power", "must be 1 or 2");
    if (!shifts) return {nullptr, power, column_power};
    require(static_cast<int64_t>(shifts->size()) == count, "shifts", "needs one element per batch (graph rule: one)");
    return {shifts->data(), power, column_power};
}

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

template <class Index>
void prefetch_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, int64_t r, int64_t end) {
    if (r + 2 * kMergeAhead < end) SPSAMPLE_PREFETCH(A.indptr + Q.vertices[r + 2 * kMergeAhead]);
    if (r + kMergeAhead < end) SPSAMPLE_PREFETCH(A.indices + A.indptr[Q.vertices[r + kMergeAhead]]);
}

// The merged row of one batch: O(entries of its rows + sort of its distinct columns).
template <class Index, class Weights>
MergedRow<Index> merge_batch(
    const CsrView<Index>& A, const Weights& weights, const SelectorView<Index>& Q, const Rule& rule, int64_t batch,
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
