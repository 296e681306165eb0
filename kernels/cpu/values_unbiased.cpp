// The values of an unbiased estimate, in one call: numerators read off the extraction, weights of src columns, values (docs/law.md, 6).
#include "values.h"
#include "values_sources.h"

namespace spsample {
namespace {

// N of the src columns: the array that was given, or read off the extraction.
template <class Index, class Weights>
const uint64_t* numerators_of(
    const NumeratorsIn& given, const ValueArguments<Index>& in, const Weights& weights, Buffer<uint64_t>& read) {
    const int64_t num_src = in.src_ptr[in.Q.num_batches];
    if (given.array) {
        require(static_cast<int64_t>(given.array->size()) == num_src, "numerators", "needs one element per src column");
        return given.array->data();
    }
    read = Buffer<uint64_t>(num_src);
    sum_extracted(in.A, weights, in.Q, in.rows, in.src_ptr, quantisation_rule(*given.rule, in.Q.num_batches), read);
    return read.data();
}

// `size`: of a draw with replacement, 0 of one without.
template <class Index>
nb::object unbiased_values(const ExtractedLayerIn<Index>& layer, const NumeratorsIn& numerators, int64_t size, bool normalize) {
    const auto& [matrix, selector, stacked, sample, sources, include_targets] = layer;
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    const StackedView<Index> rows = stacked_view(selector.batch_ptr, stacked);
    require_positions(rows, matrix.data.has_value(), A.num_entries);
    require(sources.src_ptr.size() == selector.batch_ptr.size(), "src_ptr", "needs one element per batch and one more");
    const int64_t num_src = sources.src_ptr.data()[Q.num_batches];
    require_pointers(sources.src_ptr, num_src, "src_ptr");
    ValueArguments<Index> in{A, Q, rows, sources.src_ptr.data(), nullptr, normalize};
    const auto num_targets = [&](int64_t batch) { return include_targets ? Q.batch_ptr[batch + 1] - Q.batch_ptr[batch] : 0; };
    return with_weights(matrix.data, matrix.row_normalized, A.num_entries, [&](auto weights) -> nb::object {
        Buffer<ValueOf<decltype(weights)>> values;
        int64_t overflowed = -1;
        {
            nb::gil_scoped_release release;
            Buffer<uint64_t> read;
            const DrawnColumns<Index> drawn = drawn_columns(sample, sources, numerators_of(numerators, in, weights, read), num_src);
            require(drawn.num_batches == Q.num_batches, "totals", "needs one element per batch");
            const Buffer<double> factors = size > 0 ? with_replacement(drawn, sample, num_targets, size) : des_raj(drawn, sample, num_targets);
            in.factors = factors.data();
            values = compute_values<ValueOf<decltype(weights)>>(in, weights, &overflowed);
        }
        return nb::make_tuple(to_numpy(std::move(values)), overflowed);
    });
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("unbiased_values", &unbiased_values<Index>, "(values of the extracted entries, the first entry whose value is not finite or -1).");
}

}  // namespace

void bind_values_unbiased(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
