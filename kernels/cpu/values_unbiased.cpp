// The values of an unbiased estimate, in one call: numerators read off the extraction, weights of src columns, values (docs/law.md, 6).
#include "values_unbiased.h"

namespace spsample {
namespace {

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
    require(
        !numerators.array || static_cast<int64_t>(numerators.array->size()) == num_src, "numerators", "needs one element per src column");
    const ValueArguments<Index> in{A, Q, rows, sources.src_ptr.data(), nullptr, normalize};
    return with_weights(matrix.data, matrix.row_normalized, A.num_entries, [&](auto weights) -> nb::object {
        CheckedValues<ValueOf<decltype(weights)>> found;
        {
            nb::gil_scoped_release release;
            Buffer<uint64_t> read;
            if (!numerators.array) read = read_numerators(*numerators.rule, in, weights);
            const uint64_t* const N = numerators.array ? numerators.array->data() : read.data();
            found = unbiased(in, weights, drawn_columns(sample, sources, N, num_src), sample, include_targets, size);
        }
        return nb::make_tuple(to_numpy(std::move(found.values)), found.overflowed);
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
