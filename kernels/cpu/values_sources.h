// The weights c_v of the src columns of layer-wise samples (docs/law.md, section 6), in binary64 and the law's order.
#pragma once

#include <algorithm>

#include "bindings.h"

namespace spsample {

// Columns drawn for k batches and where they stand in src.
template <class Index>
struct DrawnColumns {
    const int64_t* indptr;
    const Index* local;
    const uint64_t* totals;
    const int64_t* src_ptr;
    const uint64_t* numerators;
    int64_t num_batches;

    int64_t count(int64_t batch) const { return indptr[batch + 1] - indptr[batch]; }
    int64_t num_src(int64_t batch) const { return src_ptr[batch + 1] - src_ptr[batch]; }

    // Index in its batch's src of drawn column j of `batch`.
    int64_t at(int64_t batch, int64_t j) const {
        const uint64_t place = static_cast<uint64_t>(local[indptr[batch] + j]);
        require(place < static_cast<uint64_t>(num_src(batch)), "local", "a local column is not below the batch's src");
        return static_cast<int64_t>(place);
    }
};

// Checked. `local`: the drawn columns' places in src, whose pointers `src_ptr` (k + 1) are checked; `numerators`: N of every src column.
template <class Index>
DrawnColumns<Index> drawn_columns(
    const SampleIn& sample, const Index* local, int64_t num_drawn, const int64_t* src_ptr, const uint64_t* numerators) {
    const int64_t num_batches = static_cast<int64_t>(sample.totals.size());
    require(sample.indptr.size() == sample.totals.size() + 1, "indptr", "needs one element per batch and one more");
    require_pointers(sample.indptr, num_drawn, "indptr");
    return {sample.indptr.data(), local, sample.totals.data(), src_ptr, numerators, num_batches};
}

// The same, of `num_src` src columns of all batches.
template <class Index>
DrawnColumns<Index> drawn_columns(
    const SampleIn& sample, const CompactionIn<Index>& sources, const uint64_t* numerators, int64_t num_src) {
    const auto& [src_ptr, local] = sources;
    require(src_ptr.size() == sample.indptr.size(), "indptr", "needs one element per batch and one more");
    require_pointers(src_ptr, num_src, "src_ptr");
    return drawn_columns(sample, local.data(), static_cast<int64_t>(local.size()), src_ptr.data(), numerators);
}

// The weights of all batches, by weigh(batch, N of the batch's src, their weights), which sets those that are not 1.
template <class Index, class Weigh>
Buffer<double> weighed(const DrawnColumns<Index>& drawn, Weigh&& weigh) {
    constexpr int64_t kBatches = 8;  // of one task: some thousand columns
    Buffer<double> weights(drawn.src_ptr[drawn.num_batches]);
    parallel_chunks(drawn.num_batches, kBatches, [&](int64_t begin, int64_t end) {
        for (int64_t batch = begin; batch < end; ++batch) {
            double* out = weights.data() + drawn.src_ptr[batch];
            std::fill_n(out, drawn.num_src(batch), 1.0);
            weigh(batch, drawn.numerators + drawn.src_ptr[batch], out);
        }
    });
    return weights;
}

// Des Raj's ordered estimator: the r-th of s' drawn columns weighs ((T - N_1 - ... - N_(r-1)) / N_r + (s' - r)) / s'; the first
// `num_targets(batch)` src columns of a batch, and all where the support was taken whole, weigh 1.
template <class Index, class NumTargets>
Buffer<double> des_raj(const DrawnColumns<Index>& drawn, const SampleIn& sample, const NumTargets& num_targets) {
    require(sample.whole.size() == sample.totals.size(), "whole", "needs one element per batch");
    return weighed(drawn, [&](int64_t batch, const uint64_t* N, double* weights) {
        if (sample.whole.data()[batch]) return;
        const int64_t size = drawn.count(batch), targets = num_targets(batch);
        uint64_t remaining = drawn.totals[batch];
        for (int64_t j = 0; j < size; ++j) {
            const int64_t column = drawn.at(batch, j);
            const double share = static_cast<double>(remaining) / static_cast<double>(N[column]);
            const double weight = (share + static_cast<double>(size - j - 1)) / static_cast<double>(size);
            if (column >= targets) weights[column] = weight;
            remaining -= N[column];
        }
    });
}

// Draws with replacement (Hansen and Hurwitz): a column drawn `count` times in `size` draws weighs (count T) / (size N); the first
// `num_targets(batch)` src columns of a batch weigh 1.
template <class Index, class NumTargets>
Buffer<double> with_replacement(
    const DrawnColumns<Index>& drawn, const SampleIn& sample, const NumTargets& num_targets, int64_t size) {
    require(static_cast<int64_t>(sample.counts.size()) == drawn.indptr[drawn.num_batches], "counts", "needs one element per drawn column");
    return weighed(drawn, [&](int64_t batch, const uint64_t* N, double* weights) {
        const double total = static_cast<double>(drawn.totals[batch]);
        const int64_t targets = num_targets(batch);
        const int64_t* times = sample.counts.data() + drawn.indptr[batch];
        for (int64_t j = 0; j < drawn.count(batch); ++j) {
            const int64_t column = drawn.at(batch, j);
            if (column < targets) continue;
            weights[column] = (static_cast<double>(times[j]) * total) / (static_cast<double>(size) * static_cast<double>(N[column]));
        }
    });
}

}  // namespace spsample
