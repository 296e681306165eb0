// Whole rows, stacked: take_rows, and take_rows_numbered, which numbers their columns on the way (fanout -1; docs/law.md, sections 3, 4).
#include "compaction.h"
#include "row_law_whole.h"

namespace spsample {
namespace {

template <class Index>
RowsResult<Index> whole_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, bool positions) {
    WholeRows<Index> rows = laid_out_whole(A, Q, positions);
    copy_rows(A, Q, rows);
    return std::move(rows.result);
}

// --- numbered on the way ------------------------------------------------------------------------------------------------

template <class Index>
struct NumberedRows {
    RowsResult<Index> result;
    Sources<Index> sources;
};

// A batch is one thread's where its columns are numbered. Few batches are copied by all threads first.
bool worth_copying_first(int64_t num_batches) { return thread_limit() > 1 && num_batches < 4 * int64_t(thread_limit()); }

template <class Index>
NumberedRows<Index> copied_then_numbered(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const SelectorView<Index>& known, bool positions, bool include_targets) {
    NumberedRows<Index> all{whole_rows(A, Q, positions), {}};
    all.sources = number_columns<Index>(known, all.result.entry_ptr.data(), all.result.columns.data(), include_targets);
    return all;
}

// Every batch is numbered as soon as it is copied, while its columns are in the cache.
template <class Index>
NumberedRows<Index> copied_and_numbered(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const SelectorView<Index>& known, bool positions, bool include_targets) {
    WholeRows<Index> rows = laid_out_whole(A, Q, positions);
    RowsResult<Index>& result = rows.result;
    const auto columns_of = [&](int64_t i) {
        copy_batch(A, Q, rows, i);
        const int64_t first = result.entry_ptr[i];
        return Columns<Index>{result.columns.data() + first, result.entry_ptr[i + 1] - first};
    };
    Sources<Index> sources = number_batches(known, include_targets, columns_of);
    return {std::move(result), std::move(sources)};
}

// --- bindings -----------------------------------------------------------------------------------------------------------

// O(m + entries of the rows).
template <class Index>
nb::tuple take_rows(
    const In<int64_t>& indptr, const In<Index>& indices, const In<int64_t>& batch_ptr, const In<Index>& vertices,
    const In<int64_t>& batch_ids, bool positions) {
    const CsrView<Index> A = csr_view(indptr, indices);
    const SelectorView<Index> Q = selector_view(batch_ptr, vertices, batch_ids, A.num_rows);
    return run<Index>([&] { return whole_rows(A, Q, positions); });
}

// (rows as of take_rows, their columns numbered; src_ptr, src). The targets of a batch are its `known` vertices.
template <class Index>
nb::tuple take_rows_numbered(
    const MatrixIn<Index>& matrix, const SelectorIn<Index>& selector, const In<int64_t>& known_ptr,
    const In<Index>& known, bool positions, bool include_targets) {
    const CsrView<Index> A = csr_view(matrix.indptr, matrix.indices);
    const SelectorView<Index> Q = selector_view(selector, A.num_rows);
    const SelectorView<Index> targets = batches_view<Index>(known_ptr, known);
    require(targets.num_batches == Q.num_batches, "known", "needs as many batches as there are of rows");
    NumberedRows<Index> all;
    {
        nb::gil_scoped_release release;
        all = worth_copying_first(Q.num_batches) ? copied_then_numbered(A, Q, targets, positions, include_targets)
                                                 : copied_and_numbered(A, Q, targets, positions, include_targets);
    }
    return nb::make_tuple(
        packed(std::move(all.result)), to_numpy(std::move(all.sources.src_ptr)), to_numpy(std::move(all.sources.src)));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("take_rows", &take_rows<Index>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          nb::arg("batch_ptr"), nb::arg("vertices"), nb::arg("batch_ids"),
          nb::arg("positions"));
    m.def("take_rows_numbered", &take_rows_numbered<Index>, "((entry_ptr, indptr, local columns, positions), src_ptr, src) of whole rows.");
}

}  // namespace

void bind_row_law_whole(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
