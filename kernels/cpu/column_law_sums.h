// Sums by column of each of many batches: how those of a batch are made, and which threads make them.
//
// A frontier of many entries is summed into a dense row over all columns (column_law_dense.h), a small one by a hash table (column_law_hashed.h).
// Batches run in parallel; where there are fewer of them than threads and columns enough, all threads share each batch's columns.
#pragma once

#include <optional>
#include <utility>

#include "bindings.h"
#include "column_law_dense.h"
#include "column_law_hashed.h"
#include "parallel.h"

namespace spsample {

constexpr int64_t kColumnsPerEntry = 64;            // a dense row serves where there are at most this number of columns per entry
constexpr int64_t kMostColumns = int64_t(1) << 27;  // and at most this number in all: 256 MB or 1 GB a thread

// P as rows of sums: `columns` ascend in each row, `totals` are the sums of its numerators.
template <class Index>
struct MergedRows {
    Buffer<int64_t> indptr;
    Buffer<Index> columns;
    Buffer<uint64_t> numerators, totals;
};

template <class Index>
nb::tuple packed(MergedRows<Index>&& merged) {
    return nb::make_tuple(
        to_numpy(std::move(merged.indptr)), to_numpy(std::move(merged.columns)), to_numpy(std::move(merged.numerators)),
        to_numpy(std::move(merged.totals)));
}

// Whose sums: Q A under a rule.
template <class Index, class Weights>
struct BatchSums {
    const CsrView<Index>& A;
    const Weights& weights;
    const SelectorView<Index>& Q;
    const QuantisationRule& rule;
};

template <class Index, class Weights>
int64_t batch_entries(const BatchSums<Index, Weights>& in, int64_t batch) {
    int64_t entries = 0;
    for (int64_t r = in.Q.batch_ptr[batch]; r < in.Q.batch_ptr[batch + 1]; ++r) entries += in.A.degree(in.Q.vertices[r]);
    return entries;
}

// Whether a row of sums over all columns serves a batch. O(rows).
template <class Index, class Weights>
bool is_dense(const BatchSums<Index, Weights>& in, int64_t batch) {
    return in.A.num_columns <= kMostColumns && in.A.num_columns / kColumnsPerEntry <= batch_entries(in, batch);
}

// Dense sums of one thread, or of all that share a batch.
class DenseScratch {
public:
    template <class Sum>
    DenseSums<Sum>& sums(int64_t num_columns) {
        std::optional<DenseSums<Sum>>& kept = of<Sum>();
        return kept ? *kept : kept.emplace(num_columns);
    }

    template <class Sum>
    void forget() {
        of<Sum>().reset();
    }

private:
    template <class Sum>
    std::optional<DenseSums<Sum>>& of() {
        if constexpr (std::is_same_v<Sum, Mark>) {
            return marks_;
        } else if constexpr (std::is_same_v<Sum, uint16_t>) {
            return counts_;
        } else {
            return sums_;
        }
    }

    std::optional<DenseSums<Mark>> marks_;
    std::optional<DenseSums<uint16_t>> counts_;
    std::optional<DenseSums<uint64_t>> sums_;
};

// The sums of a batch, or the marks. over_ranges(count, body) calls body(begin, end) for ranges that together are [0, count).
// O(n + entries).
template <class Sum, class Index, class Weights, class Ranges>
DenseSums<Sum>& make_sums(const BatchSums<Index, Weights>& in, int64_t batch, DenseScratch& scratch, const Ranges& over_ranges) {
    DenseSums<Sum>& sums = scratch.template sums<Sum>(in.A.num_columns);
    over_ranges(sums.num_ranges(), [&](int64_t begin, int64_t end) { sums.make(in.A, in.weights, in.Q, in.rule, batch, begin, end); });
    return sums;
}

// What body(DenseRow) makes of a batch's sums: of 16 bits where every entry counts 1 and that is enough, else of 64. O(n + entries).
template <class Index, class Weights, class Ranges, class Body>
auto with_dense_row(
    const BatchSums<Index, Weights>& in, int64_t batch, DenseScratch& scratch, const Ranges& over_ranges, Body&& body) {
    const int32_t power = in.rule.column_power;
    if (!in.rule.shifts) {
        DenseSums<uint16_t>& counts = make_sums<uint16_t>(in, batch, scratch, over_ranges);
        if (counts.plain_total() == static_cast<uint64_t>(batch_entries(in, batch))) return body(counts.row(power));
        scratch.forget<uint16_t>();  // its memory goes before more is taken
    }
    return body(make_sums<uint64_t>(in, batch, scratch, over_ranges).row(power));
}

// Whether all threads should share each batch: there are fewer batches than threads, and more ranges of columns than batches.
template <class Index, class Weights>
bool shares_batches(const BatchSums<Index, Weights>& in) {
    const int64_t k = in.Q.num_batches;
    if (k >= thread_limit() || k >= DenseSums<uint64_t>::num_ranges_of(in.A.num_columns)) return false;
    for (int64_t batch = 0; batch < k; ++batch) {
        if (is_dense(in, batch)) return true;
    }
    return false;
}

// Calls body(scratch, batch, over_ranges) for each batch, with the scratch of the thread, or of all that share the batch.
template <class Scratch, class Index, class Weights, class Body>
void for_each_batch(const BatchSums<Index, Weights>& in, Body&& body) {
    if (!shares_batches(in)) {
        const auto at_once = [](int64_t count, auto&& range) { range(int64_t(0), count); };
        const auto make_scratch = [] { return Scratch(); };
        return parallel_chunks(in.Q.num_batches, 1, make_scratch, [&](Scratch& scratch, int64_t batch, int64_t) {
            body(scratch, batch, at_once);
        });
    }
    const DefaultFloatEnvironment environment;
    const auto in_parallel = [](int64_t count, auto&& range) { parallel_chunks(count, 1, range); };
    Scratch scratch;
    for (int64_t batch = 0; batch < in.Q.num_batches; ++batch) body(scratch, batch, in_parallel);
}

}  // namespace spsample
