// The weights of src columns, each kind by a call of its own (values_sources.h).
//
// Arrays of all three kernels, for k batches: `indptr` (k + 1) and `local`, a drawn column's index in its batch's src, in the order
// drawn; `totals` (k), T of each batch; `src_ptr` (k + 1); `numerators`, N of every src column. The result has one weight for each
// src column. O(src + drawn columns), in parallel over batches.
#include "values_sources.h"

namespace spsample {
namespace {

// The number of targets of each batch, given.
auto given_targets(const In<int64_t>& num_targets, const SampleIn& sample) {
    require(num_targets.size() == sample.totals.size(), "num_targets", "needs one element per batch");
    return [targets = num_targets.data()](int64_t batch) { return targets[batch]; };
}

template <class Index>
DrawnColumns<Index> drawn_columns(const SampleIn& sample, const CompactionIn<Index>& sources, const In<uint64_t>& numerators) {
    return drawn_columns(sample, sources, numerators.data(), static_cast<int64_t>(numerators.size()));
}

// What make() gives while other threads have the GIL.
template <class Make>
nb::object without_gil(Make&& make) {
    Buffer<double> weights;
    {
        nb::gil_scoped_release release;
        weights = make();
    }
    return to_numpy(std::move(weights));
}

template <class Index>
nb::object des_raj_weights(
    const SampleIn& sample, const CompactionIn<Index>& sources, const In<int64_t>& num_targets, const In<uint64_t>& numerators) {
    const DrawnColumns<Index> drawn = drawn_columns(sample, sources, numerators);
    const auto targets = given_targets(num_targets, sample);
    return without_gil([&] { return des_raj(drawn, sample, targets); });
}

template <class Index>
nb::object replacement_weights(
    const SampleIn& sample, const CompactionIn<Index>& sources, const In<int64_t>& num_targets, const In<uint64_t>& numerators,
    int64_t size) {
    const DrawnColumns<Index> drawn = drawn_columns(sample, sources, numerators);
    const auto targets = given_targets(num_targets, sample);
    return without_gil([&] { return with_replacement(drawn, sample, targets, size); });
}

// As the authors of LADIES compute them: T / (s' N) for every src column, 0 where s' or N is 0.
template <class Index>
nb::object reference_weights(const SampleIn& sample, const CompactionIn<Index>& sources, const In<uint64_t>& numerators) {
    const DrawnColumns<Index> drawn = drawn_columns(sample, sources, numerators);
    const auto weigh = [&](int64_t batch, const uint64_t* N, double* weights) {
        const double total = static_cast<double>(drawn.totals[batch]), size = static_cast<double>(drawn.count(batch));
        for (int64_t v = 0; v < drawn.num_src(batch); ++v) {
            const double denominator = size * static_cast<double>(N[v]);
            weights[v] = denominator > 0.0 ? total / denominator : 0.0;
        }
    };
    return without_gil([&] { return weighed(drawn, weigh); });
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("des_raj_weights", &des_raj_weights<Index>, "Weight of every src column of a draw without replacement.");
    m.def("replacement_weights", &replacement_weights<Index>, "Weight of every src column of a draw with replacement.");
    m.def("reference_weights", &reference_weights<Index>, "Weight of every src column as the authors of LADIES compute it.");
}

}  // namespace

void bind_values_sources(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
