// The column law, one draw per batch (docs/law.md, section 3): draw_columns, from rows of P; and draw_merged, Q A by columns and the
// law in one kernel, without writing P. Which batches are summed how, and by which threads: column_law_sums.h.
//
// The result is a ColumnSample (spsample/backends/protocol.py).
#include <algorithm>
#include <optional>
#include <vector>

#include "column_law_sums.h"
#include "distinct_draws.h"

namespace spsample {
namespace {

// --- draw_columns -----------------------------------------------------------------------------------------------------------

// P: k rows of columns (ascending) and numerators, indptr k + 1. O(entries of P + k size log d) expected time.
template <class Index>
nb::tuple draw_columns(const ColumnMatrixIn<Index>& P, const In<int64_t>& batch_ids, const DrawIn& how) {
    const In<int64_t>& indptr = P.indptr;
    const In<Index>& columns = P.columns;
    const In<uint64_t>& numerators = P.numerators;
    require(numerators.size() == columns.size(), "numerators", "needs one element per column");
    require(batch_ids.size() + 1 == indptr.size(), "batch_ids", "needs one element per row of P");
    require_pointers(indptr, static_cast<int64_t>(columns.size()), "indptr");
    const DrawArguments draw = draw_arguments(how);
    const int64_t num_batches = static_cast<int64_t>(batch_ids.size());
    const int64_t* ptr = indptr.data();
    SampleResult<Index> result;
    {
        nb::gil_scoped_release release;
        const auto draw_batch = [&](DrawScratch& scratch, int64_t i, Index* out, int64_t* counts, uint64_t* total, bool* whole) {
            const PrefixRow row = summed_row(numerators.data() + ptr[i], ptr[i + 1] - ptr[i], scratch);
            *total = row.total();
            *whole = !draw.replace && support_within(row, draw.size);
            const Chosen chosen = draw_positions(row, draw, batch_ids.data()[i], *whole, scratch, counts);
            for (int64_t j = 0; j < chosen.count; ++j) out[j] = columns.data()[ptr[i] + chosen.outcomes[j]];
            return chosen.count;
        };
        const auto capacity = [&](int64_t i) { return std::min(draw.size, ptr[i + 1] - ptr[i]); };
        result = for_batches<Index, DrawScratch>(num_batches, capacity, draw_batch);
    }
    return packed(std::move(result));
}

// --- draw_merged ------------------------------------------------------------------------------------------------------------

// The arguments of a call.
template <class Index, class Weights>
struct MergedDraw {
    const BatchSums<Index, Weights>& sums;
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
    DenseScratch dense;
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

// Expected time O(entries + size log entries).
template <class Index, class Weights>
BatchSample<Index> draw_by_hash(const MergedDraw<Index, Weights>& in, int64_t batch, MergedScratch<Index>& scratch) {
    const auto& [A, weights, Q, rule] = in.sums;
    const MergedRow<Index> merged = merge_batch(A, weights, Q, rule, batch, scratch.merge);
    const PrefixRow row = summed_row(merged.numerators.data(), static_cast<int64_t>(merged.numerators.size()), scratch.draw);
    const auto column_of = [&](int64_t position) { return merged.columns[static_cast<size_t>(position)]; };
    return draw_row<Index>(row, in.draw, Q.batch_ids[batch], scratch.draw, column_of);
}

// O(n + entries + size kSumBlock).
template <class Index, class Weights, class Ranges>
BatchSample<Index> draw_by_sums(
    const MergedDraw<Index, Weights>& in, int64_t batch, MergedScratch<Index>& scratch, const Ranges& over_ranges) {
    return with_dense_row(in.sums, batch, scratch.dense, over_ranges, [&](const auto& row) {
        return draw_row<Index>(row, in.draw, in.sums.Q.batch_ids[batch], scratch.draw, [](int64_t column) { return column; });
    });
}

template <class Index, class Weights>
void draw_batches(const MergedDraw<Index, Weights>& in, std::vector<BatchSample<Index>>& samples) {
    for_each_batch<MergedScratch<Index>>(in.sums, [&](MergedScratch<Index>& scratch, int64_t batch, const auto& over_ranges) {
        BatchSample<Index>& sample = samples[static_cast<size_t>(batch)];
        sample = is_dense(in.sums, batch) ? draw_by_sums(in, batch, scratch, over_ranges) : draw_by_hash(in, batch, scratch);
    });
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
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const QuantisationRuleIn& quantisation,
    const DrawIn& how) {
    const CsrView<Index> A = csr_view_over(matrix.indptr, matrix.indices, matrix.num_columns);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    const QuantisationRule rule = quantisation_rule(quantisation, Q.num_batches);
    const DrawArguments draw = draw_arguments(how);
    std::vector<BatchSample<Index>> samples(static_cast<size_t>(Q.num_batches));
    with_weights(matrix.data, matrix.row_normalized, A.num_entries, [&](auto weights) {
        nb::gil_scoped_release release;
        const BatchSums<Index, decltype(weights)> sums{A, weights, Q, rule};
        draw_batches(MergedDraw<Index, decltype(weights)>{sums, draw}, samples);
    });
    return stacked(samples);
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("draw_columns", &draw_columns<Index>);
    m.def("draw_merged", &draw_merged<Index>, "The column law on Q A, as draw_columns on the result of merge_columns.");
}

}  // namespace

void bind_column_law(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
