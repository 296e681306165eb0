// A layer of a layer-wise sampler in one call: its drawn columns numbered, its rows restricted to them, and the values of an unbiased
// estimate (docs/law.md, sections 4 and 6). Every step is what `compact`, `extract` and `unbiased_values` do; a small call spends more
// time between them than in them.
#include "column_law_shared.h"
#include "compaction.h"
#include "extraction.h"
#include "values_unbiased.h"

namespace spsample {
namespace {

template <class Index>
struct UnbiasedLayer {
    Buffer<Index> local;  // a drawn column's place in its batch's src
    Sources<Index> sources;
    Extraction<Index> rows;
};

template <class Index>
UnbiasedLayer<Index> extracted_layer(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const WholeSampleIn<Index>& sample, const UnbiasedExtractionIn& how) {
    UnbiasedLayer<Index> layer;
    layer.local = Buffer<Index>(static_cast<int64_t>(sample.columns.size()));
    std::copy_n(sample.columns.data(), layer.local.size(), layer.local.data());
    layer.sources = number_columns<Index>(Q, sample.indptr.data(), layer.local.data(), how.include_targets);
    layer.rows = extract_rows(A, Q, layer.sources.src_ptr.data(), layer.sources.src.data(), how.positions);
    return layer;
}

// `numerators`: the rule by which they are read off the extraction, or the inclusive prefix sums that all batches drew by.
template <class Index>
nb::tuple extract_unbiased(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const WholeSampleIn<Index>& sample,
    const NumeratorsIn& numerators, const UnbiasedExtractionIn& how) {
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    require(sample.indptr.size() == selector.batch_ptr.size(), "indptr", "needs one element per batch and one more");
    require_pointers(sample.indptr, static_cast<int64_t>(sample.columns.size()), "indptr");
    require(how.positions || !matrix.data, "positions", "are needed where A has weights");
    return with_weights(matrix.data, matrix.row_normalized, A.num_entries, [&](auto weights) -> nb::tuple {
        UnbiasedLayer<Index> layer;
        CheckedValues<ValueOf<decltype(weights)>> found;
        {
            nb::gil_scoped_release release;
            layer = extracted_layer(A, Q, sample, how);
            const auto& [local, sources, rows] = layer;
            const StackedView<Index> entries{
                rows.pointers.entry_ptr.data(), rows.pointers.indptr.data(), rows.columns.data(), rows.positions.data(), rows.columns.size()};
            const ValueArguments<Index> in{A, Q, entries, sources.src_ptr.data(), nullptr, how.normalize};
            const Buffer<uint64_t> N = numerators.array ? numerators_at(prefix_row(*numerators.array), sources.src.data(), sources.src.size())
                                                        : read_numerators(*numerators.rule, in, weights);
            const DrawnColumns<Index> drawn = drawn_columns(sample, local.data(), local.size(), sources.src_ptr.data(), N.data());
            found = unbiased(in, weights, drawn, sample, how.include_targets, how.size);
        }
        nb::object positions = nb::none();
        if (how.positions) positions = to_numpy(std::move(layer.rows.positions));
        return nb::make_tuple(
            to_numpy(std::move(layer.sources.src_ptr)), to_numpy(std::move(layer.sources.src)),
            to_numpy(std::move(layer.rows.pointers.entry_ptr)), to_numpy(std::move(layer.rows.pointers.indptr)),
            to_numpy(std::move(layer.rows.columns)), positions, to_numpy(std::move(found.values)), found.overflowed);
    });
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("extract_unbiased", &extract_unbiased<Index>,
          "(src_ptr, src, entry_ptr, indptr, columns, positions or None, values, the first entry whose value is not finite or -1).");
}

}  // namespace

void bind_extraction_unbiased(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
