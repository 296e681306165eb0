// The values of an unbiased estimate (docs/law.md, section 6), for kernels that have the numerators of src columns, or can read them.
#pragma once

#include "values.h"
#include "values_sources.h"

namespace spsample {

// The entries' values, and the first one that is not finite, or -1.
template <class Real>
struct CheckedValues {
    Buffer<Real> values;
    int64_t overflowed = -1;
};

// N of the src columns, read off the extraction by a rule.
template <class Index, class Weights>
Buffer<uint64_t> read_numerators(const QuantisationRuleIn& rule, const ValueArguments<Index>& in, const Weights& weights) {
    Buffer<uint64_t> numerators(in.src_ptr[in.Q.num_batches]);
    sum_extracted(in.A, weights, in.Q, in.rows, in.src_ptr, quantisation_rule(rule, in.Q.num_batches), numerators);
    return numerators;
}

// A_iv c_v of every entry, for the weights c of columns drawn with replacement in `size` draws, or without (0). With `include_targets`
// a batch's first src columns are its rows' vertices. `in.factors` are set here.
template <class Index, class Weights>
CheckedValues<ValueOf<Weights>> unbiased(
    ValueArguments<Index> in, const Weights& weights, const DrawnColumns<Index>& drawn, const SampleIn& sample, bool include_targets,
    int64_t size) {
    require(drawn.num_batches == in.Q.num_batches, "totals", "needs one element per batch");
    const int64_t* const ptr = in.Q.batch_ptr;
    const auto num_targets = [&](int64_t batch) { return include_targets ? ptr[batch + 1] - ptr[batch] : 0; };
    const Buffer<double> factors = size > 0 ? with_replacement(drawn, sample, num_targets, size) : des_raj(drawn, sample, num_targets);
    in.factors = factors.data();
    CheckedValues<ValueOf<Weights>> checked;
    checked.values = compute_values<ValueOf<Weights>>(in, weights, &checked.overflowed);
    return checked;
}

}  // namespace spsample
