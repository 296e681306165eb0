// Numerators of src columns and values of entries, each by a call of its own (values.h).
#include "values.h"

namespace spsample {
namespace {

template <class Index>
nb::object extracted_numerators(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const RowsIn<Index>& stacked,
    const In<int64_t>& src_ptr, const QuantisationRuleIn& quantisation) {
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    const QuantisationRule rule = quantisation_rule(quantisation, Q.num_batches);
    const StackedView<Index> rows = stacked_view(selector.batch_ptr, stacked);
    require_positions(rows, matrix.data.has_value(), A.num_entries);
    require(src_ptr.size() == selector.batch_ptr.size(), "src_ptr", "needs one element per batch and one more");
    require_pointers(src_ptr, src_ptr.data()[Q.num_batches], "src_ptr");
    Buffer<uint64_t> numerators(src_ptr.data()[Q.num_batches]);
    with_weights(matrix.data, matrix.row_normalized, A.num_entries, [&](auto weights) {
        nb::gil_scoped_release release;
        sum_extracted(A, weights, Q, rows, src_ptr.data(), rule, numerators);
    });
    return to_numpy(std::move(numerators));
}

template <class Index>
nb::object entry_values(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const RowsIn<Index>& stacked,
    const In<int64_t>& src_ptr, const In<double>& factors, bool normalize) {
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    const StackedView<Index> rows = stacked_view(selector.batch_ptr, stacked);
    require_positions(rows, matrix.data.has_value(), A.num_entries);
    require(src_ptr.size() == selector.batch_ptr.size(), "src_ptr", "needs one element per batch and one more");
    require_pointers(src_ptr, static_cast<int64_t>(factors.size()), "src_ptr");
    const ValueArguments<Index> in{A, Q, rows, src_ptr.data(), factors.data(), normalize};
    return with_weights(matrix.data, matrix.row_normalized, A.num_entries, [&](auto weights) -> nb::object {
        using Real = ValueOf<decltype(weights)>;
        Buffer<Real> values;
        int64_t overflowed = -1;
        {
            nb::gil_scoped_release release;
            values = compute_values<Real>(in, weights, &overflowed);
        }
        return nb::make_tuple(to_numpy(std::move(values)), overflowed);
    });
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("extracted_numerators", &extracted_numerators<Index>, "Numerator of every src column, from an extraction.");
    m.def("entry_values", &entry_values<Index>, "(values of the extracted entries, the first entry whose value is not finite or -1).");
}

}  // namespace

void bind_values(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
