// Whole rows, stacked: take_rows (fanout -1; docs/law.md, section 3).
#include <algorithm>
#include <vector>

#include "row_fill.h"

namespace spsample {
namespace {

template <class Index>
RowsResult<Index> whole_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, bool positions) {
    RowsResult<Index> result = laid_out(A, Q, positions, [&](int64_t vertex) { return A.degree(vertex); });
    parallel_chunks(Q.num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
        for_rows(Q, begin, end, [&](int64_t r, int64_t i) {
            if (r + kAhead < end) SPSAMPLE_PREFETCH(A.indices + A.begin(Q.vertices[r + kAhead]));
            const int64_t first = A.begin(Q.vertices[r]), degree = A.degree(Q.vertices[r]);
            const int64_t offset = result.offset(r, i);
            std::copy(A.indices + first, A.indices + first + degree, result.columns.data() + offset);
            if (!positions) return;
            for (int64_t e = 0; e < degree; ++e) result.positions[offset + e] = first + e;
        });
    });
    return result;
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

template <class Index>
void bind_for(nb::module_& m) {
    m.def("take_rows", &take_rows<Index>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(), nb::arg("batch_ids").noconvert(),
          nb::arg("positions"));
}

}  // namespace

void bind_rows(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
    bind_weighted_rows(m);
}

}  // namespace spsample
