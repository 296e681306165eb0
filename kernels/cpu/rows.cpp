// Whole rows, stacked: take_rows (fanout -1; docs/law.md, section 3).
#include <algorithm>
#include <cstring>

#include "row_fill.h"

namespace spsample {
namespace {

constexpr int64_t kCopiedAtOnce = 1 << 16;  // entries
constexpr int64_t kFetchedAhead = 4096;     // bytes of a row that are asked for before its turn
constexpr int64_t kRowsAhead = 8;

// Copies the entries begin .. begin + count - 1 of A to `out` and following.
template <class Index>
void copy_entries(const CsrView<Index>& A, int64_t begin, int64_t count, int64_t out, RowsResult<Index>& result) {
    if (count <= 0) return;
    memcpy(result.columns.data() + out, A.indices + begin, static_cast<size_t>(count) * sizeof(Index));
    if (!result.with_positions) return;
    int64_t* positions = result.positions.data() + out;
    for (int64_t e = 0; e < count; ++e) positions[e] = begin + e;
}

// Asks for the first bytes of a row.
template <class Index>
void fetch_row(const CsrView<Index>& A, int64_t vertex) {
    constexpr int64_t line = 64;
    const int64_t bytes = std::min(A.degree(vertex) * static_cast<int64_t>(sizeof(Index)), kFetchedAhead);
    const char* row = reinterpret_cast<const char*>(A.indices + A.begin(vertex));
    for (int64_t byte = 0; byte < bytes; byte += line) SPSAMPLE_PREFETCH(row + byte);
}

// Copies the entries [begin, end) of all rows' entries, one after the other. They may begin and end within a row.
template <class Index>
void copy_stretch(
    const CsrView<Index>& A, const SelectorView<Index>& Q, int64_t begin, int64_t end, RowsResult<Index>& result) {
    const int64_t* entry_ptr = result.entry_ptr.data();
    int64_t i = std::upper_bound(entry_ptr, entry_ptr + Q.num_batches + 1, begin) - entry_ptr - 1;
    const int64_t* first = result.indptr.data() + Q.batch_ptr[i] + i;
    const int64_t* last = result.indptr.data() + Q.batch_ptr[i + 1] + i + 1;
    int64_t r = Q.batch_ptr[i] + (std::upper_bound(first, last, begin - entry_ptr[i]) - first - 1);
    for (int64_t ahead = r; ahead < std::min(r + kRowsAhead, Q.num_rows); ++ahead) fetch_row(A, Q.vertices[ahead]);
    for (int64_t out = begin; out < end; ++r) {
        if (r + kRowsAhead < Q.num_rows) fetch_row(A, Q.vertices[r + kRowsAhead]);
        if (r + 4 * kRowsAhead < Q.num_rows) SPSAMPLE_PREFETCH(A.indptr + Q.vertices[r + 4 * kRowsAhead]);
        while (r >= Q.batch_ptr[i + 1]) ++i;
        const int64_t skip = out - result.offset(r, i);
        const int64_t count = std::min(A.degree(Q.vertices[r]) - skip, end - out);
        copy_entries(A, A.begin(Q.vertices[r]) + skip, count, out, result);
        out += count;
    }
}

// Threads share the entries, not the rows, so that one long row is no thread's fate.
template <class Index>
RowsResult<Index> whole_rows(const CsrView<Index>& A, const SelectorView<Index>& Q, bool positions) {
    RowsResult<Index> result = laid_out(A, Q, positions, [&](int64_t vertex) { return A.degree(vertex); });
    parallel_chunks(result.columns.size(), kCopiedAtOnce, [&](int64_t begin, int64_t end) { copy_stretch(A, Q, begin, end, result); });
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
    m.def("take_rows", &take_rows<Index>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          nb::arg("batch_ptr"), nb::arg("vertices"), nb::arg("batch_ids"),
          nb::arg("positions"));
}

}  // namespace

void bind_rows(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
    bind_weighted_rows(m);
}

}  // namespace spsample
