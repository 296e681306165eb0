// draw_merged: Q A by columns and the column law in one kernel, without writing P (docs/law.md, section 3).
//
// A frontier of many entries is summed into a dense row over all columns (dense_row.h), a small one by a hash table (merge.h).
// Batches run in parallel; where there are fewer of them than threads and columns enough, all threads share each batch's columns.
#include <algorithm>
#include <optional>
#include <vector>

#include "column_sample.h"
#include "dense_row.h"

namespace spsample {
namespace {

constexpr int64_t kColumnsPerEntry = 64;            // a dense row serves where there are at most so many columns per entry
constexpr int64_t kMostColumns = int64_t(1) << 27;  // and at most so many in all: 256 MB or 1 GB a thread

// The arguments of a call.
template <class Index, class Weights>
struct MergedDraw {
    const CsrView<Index>& A;
    const Weights& weights;
    const SelectorView<Index>& Q;
    const Rule& rule;
    const DrawArguments& draw;
};

// One batch of a ColumnSample.
template <class Index>
struct BatchSample {
    std::vector<Index> columns;
    std::vector<int64_t> counts;
    uint64_t total = 0;
    bool whole = false;
};

// Memory of one thread, or of all that share a batch.
template <class Index>
struct MergedScratch {
    DrawScratch draw;
    MergeScratch<Index> merge;
    std::optional<DenseSums<uint16_t>> counts;
    std::optional<DenseSums<uint64_t>> sums;

    template <class Sum>
    DenseSums<Sum>& dense(int64_t num_columns) {
        if constexpr (sizeof(Sum) == 2) {
            return counts ? *counts : counts.emplace(num_columns);
        } else {
            return sums ? *sums : sums.emplace(num_columns);
        }
    }
};

// The column law on a row of any kind; column_of leads from position to column.
template <class Index, class Row, class ColumnOf>
BatchSample<Index> draw_row(
    const Row& row, const DrawArguments& draw, int64_t batch_id, DrawScratch& scratch, ColumnOf&& column_of) {
    BatchSample<Index> sample;
    sample.total = row.total();
    sample.whole = !draw.replace && support_within(row, draw.size);
    sample.counts.resize(static_cast<size_t>(std::min(draw.size, row.count)));
    const Chosen chosen = draw_positions(row, draw, batch_id, sample.whole, scratch, sample.counts.data());
    sample.counts.resize(static_cast<size_t>(chosen.count));
    for (int64_t j = 0; j < chosen.count; ++j) sample.columns.push_back(static_cast<Index>(column_of(chosen.outcomes[j])));
    return sample;
}

template <class Index, class Weights>
int64_t batch_entries(const MergedDraw<Index, Weights>& in, int64_t batch) {
    int64_t entries = 0;
    for (int64_t r = in.Q.batch_ptr[batch]; r < in.Q.batch_ptr[batch + 1]; ++r) entries += in.A.degree(in.Q.vertices[r]);
    return entries;
}

// Whether a row of sums over all columns serves a batch of so many entries.
template <class Index, class Weights>
bool is_dense(const MergedDraw<Index, Weights>& in, int64_t entries) {
    return in.A.num_columns <= kMostColumns && in.A.num_columns / kColumnsPerEntry <= entries;
}

// Expected time O(entries + size log entries).
template <class Index, class Weights>
BatchSample<Index> draw_by_hash(const MergedDraw<Index, Weights>& in, int64_t batch, MergedScratch<Index>& scratch) {
    const MergedRow<Index> merged = merge_batch(in.A, in.weights, in.Q, in.rule, batch, scratch.merge);
    const PrefixRow row = summed_row(merged.numerators.data(), static_cast<int64_t>(merged.numerators.size()), scratch.draw);
    const auto column_of = [&](int64_t position) { return merged.columns[static_cast<size_t>(position)]; };
    return draw_row<Index>(row, in.draw, in.Q.batch_ids[batch], scratch.draw, column_of);
}

// O(n + entries + size kSumBlock). make_ranges(sums) calls sums.make for all of its ranges. Nothing where 16 bits were not enough.
template <class Sum, class Index, class Weights, class MakeRanges>
std::optional<BatchSample<Index>> draw_by_sums(
    const MergedDraw<Index, Weights>& in, int64_t batch, int64_t entries, MergedScratch<Index>& scratch, MakeRanges&& make_ranges) {
    DenseSums<Sum>& sums = scratch.template dense<Sum>(in.A.num_columns);
    make_ranges(sums);
    if (sizeof(Sum) == 2 && sums.plain_total() != static_cast<uint64_t>(entries)) return std::nullopt;
    const DenseRow<Sum> row = sums.row(in.rule.column_power);
    return draw_row<Index>(row, in.draw, in.Q.batch_ids[batch], scratch.draw, [](int64_t column) { return column; });
}

template <class Index, class Weights, class MakeRanges>
BatchSample<Index> draw_batch(
    const MergedDraw<Index, Weights>& in, int64_t batch, MergedScratch<Index>& scratch, MakeRanges&& make_ranges) {
    const int64_t entries = batch_entries(in, batch);
    if (!is_dense(in, entries)) return draw_by_hash(in, batch, scratch);
    std::optional<BatchSample<Index>> sample;
    if (!in.rule.shifts) sample = draw_by_sums<uint16_t>(in, batch, entries, scratch, make_ranges);
    if (!sample) scratch.counts.reset();  // its memory goes before more is taken
    if (!sample) sample = draw_by_sums<uint64_t>(in, batch, entries, scratch, make_ranges);
    return std::move(*sample);
}

// Batches in parallel.
template <class Index, class Weights>
void draw_many(const MergedDraw<Index, Weights>& in, std::vector<BatchSample<Index>>& samples) {
    const auto make_scratch = [] { return MergedScratch<Index>(); };
    parallel_chunks(in.Q.num_batches, 1, make_scratch, [&](MergedScratch<Index>& scratch, int64_t batch, int64_t) {
        samples[static_cast<size_t>(batch)] = draw_batch(in, batch, scratch, [&](auto& sums) {
            sums.make(in.A, in.weights, in.Q, in.rule, batch, 0, sums.num_ranges());
        });
    });
}

// Whether all threads should share each batch: there are fewer batches than threads, and more ranges of columns than batches.
template <class Index, class Weights>
bool shares_batches(const MergedDraw<Index, Weights>& in) {
    const int64_t k = in.Q.num_batches;
    if (k >= thread_limit() || k >= DenseSums<uint64_t>::num_ranges_of(in.A.num_columns)) return false;
    for (int64_t batch = 0; batch < k; ++batch) {
        if (is_dense(in, batch_entries(in, batch))) return true;
    }
    return false;
}

// Batch after batch, ranges of columns in parallel.
template <class Index, class Weights>
void draw_few(const MergedDraw<Index, Weights>& in, std::vector<BatchSample<Index>>& samples) {
    const DefaultFloatEnvironment environment;
    MergedScratch<Index> scratch;
    for (int64_t batch = 0; batch < in.Q.num_batches; ++batch) {
        samples[static_cast<size_t>(batch)] = draw_batch(in, batch, scratch, [&](auto& sums) {
            parallel_chunks(sums.num_ranges(), 1, [&](int64_t begin, int64_t end) {
                sums.make(in.A, in.weights, in.Q, in.rule, batch, begin, end);
            });
        });
    }
}

template <class Index>
nb::tuple stacked(const std::vector<BatchSample<Index>>& samples) {
    const int64_t k = static_cast<int64_t>(samples.size());
    Buffer<int64_t> indptr(k + 1);
    indptr[0] = 0;
    for (int64_t i = 0; i < k; ++i) indptr[i + 1] = indptr[i] + static_cast<int64_t>(samples[static_cast<size_t>(i)].columns.size());
    SampleResult<Index> result{std::move(indptr), Buffer<Index>(0), Buffer<int64_t>(0), Buffer<uint64_t>(k), Buffer<bool>(k)};
    result.columns = Buffer<Index>(result.indptr[k]);
    result.counts = Buffer<int64_t>(result.indptr[k]);
    for (int64_t i = 0; i < k; ++i) {
        const BatchSample<Index>& sample = samples[static_cast<size_t>(i)];
        std::copy(sample.columns.begin(), sample.columns.end(), result.columns.data() + result.indptr[i]);
        std::copy(sample.counts.begin(), sample.counts.end(), result.counts.data() + result.indptr[i]);
        result.totals[i] = sample.total;
        result.whole[i] = sample.whole;
    }
    return packed(std::move(result));
}

template <class Index>
nb::tuple draw_merged(
    const In<int64_t>& indptr, const In<Index>& indices, const std::optional<AnyIn>& data, bool row_normalized,
    const In<int64_t>& batch_ptr, const In<Index>& vertices, const In<int64_t>& batch_ids, const std::optional<In<int64_t>>& shifts,
    int power, int column_power, uint32_t key0, uint32_t key1, int64_t hop, int64_t size, bool replace,
    const std::optional<int64_t>& num_columns) {
    const CsrView<Index> A = csr_view_over<Index>(indptr, indices, num_columns);
    const SelectorView<Index> Q = selector_view<Index>(batch_ptr, vertices, batch_ids, A.num_rows);
    const Rule rule = make_rule(shifts, power, column_power, Q.num_batches);
    const DrawArguments draw = draw_arguments(key0, key1, hop, size, replace);
    std::vector<BatchSample<Index>> samples(static_cast<size_t>(Q.num_batches));
    with_weights(data, row_normalized, A.num_entries, [&](auto weights) {
        nb::gil_scoped_release release;
        const MergedDraw<Index, decltype(weights)> in{A, weights, Q, rule, draw};
        if (shares_batches(in)) {
            draw_few(in, samples);
        } else {
            draw_many(in, samples);
        }
    });
    return stacked(samples);
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("draw_merged", &draw_merged<Index>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          nb::arg("data").noconvert().none(), nb::arg("row_normalized"), nb::arg("batch_ptr"),
          nb::arg("vertices"), nb::arg("batch_ids"), nb::arg("shifts").none(), nb::arg("power"),
          nb::arg("column_power"), nb::arg("key0"), nb::arg("key1"), nb::arg("hop"), nb::arg("size"), nb::arg("replace"),
          nb::arg("num_columns") = nb::none(),
          "The column law on Q A, as draw_columns on the result of merge_columns.");
}

}  // namespace

void bind_merged_columns(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
