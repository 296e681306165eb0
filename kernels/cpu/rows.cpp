// The row law over stacked rows, weighted and whole: sample_rows_weighted, take_rows (docs/law.md, section 3).
#include "spsample/row_law.h"

#include <algorithm>
#include <vector>

#include "row_fill.h"
#include "spsample/quantize.h"

namespace spsample {
namespace {

// --- the laws -----------------------------------------------------------------------------------------------------------

// Number of positive weights, or `enough` as soon as there are that many.
template <class Real>
int64_t count_positive(const Real* weights, int64_t degree, int64_t enough) {
    int64_t positive = 0;
    for (int64_t e = 0; e < degree && positive < enough; ++e) positive += is_positive(weights[e]) ? 1 : 0;
    return positive;
}

template <class Real>
PrefixRow quantized_row(const Real* weights, int64_t degree, DrawScratch& scratch) {
    const int64_t shift = row_shift(weights, degree);
    uint64_t* inclusive = scratch.prefix(degree);
    uint64_t sum = 0;
    for (int64_t e = 0; e < degree; ++e) {
        sum += quantize(weights[e], shift, 1);
        inclusive[e] = sum;
    }
    return {inclusive, degree};
}

template <class Index, class Real>
RowsResult<Index> weighted_rows(
    const CsrView<Index>& A, const Real* data, const SelectorView<Index>& Q, const DrawArguments& draw, bool positions) {
    RowsResult<Index> result = laid_out(A, Q, positions, [&](int64_t vertex) {
        const int64_t enough = draw.replace ? 1 : draw.size;
        return drawn_count(count_positive(data + A.begin(vertex), A.degree(vertex), enough), draw.size, draw.replace);
    });
    fill_rows(A, Q, result, [&](DrawScratch& scratch, int64_t vertex, int64_t batch_id, int64_t* out) {
        const int64_t begin = A.begin(vertex), degree = A.degree(vertex);
        const Real* weights = data + begin;
        const bool within = degree <= draw.size || count_positive(weights, degree, draw.size + 1) <= draw.size;
        if (!draw.replace && within) {
            for (int64_t e = 0; e < degree; ++e) {
                if (is_positive(weights[e])) *out++ = begin + e;
            }
            return;
        }
        const PrefixRow row = quantized_row(weights, degree, scratch);
        DrawStream draws(draw.key, static_cast<uint64_t>(vertex), draw.hop, batch_id, row.total());
        if (draw.replace) {
            its_repeated(row, draw.size, draws, out);
        } else {
            Chosen chosen = scratch.chosen(draw.size, out);
            TakenOut taken = scratch.taken_out(draw.size);
            require_draws(its_distinct(row, draw.size, draws, chosen, taken));
        }
        for (int64_t e = 0; e < draw.size; ++e) out[e] += begin;
    });
    return result;
}

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

// O(entries of the rows + m size log d) expected time, O(largest row) memory per thread.
template <class Index, class Real>
nb::tuple sample_rows_weighted(
    const In<int64_t>& indptr, const In<Index>& indices, const In<Real>& data, const In<int64_t>& batch_ptr,
    const In<Index>& vertices, const In<int64_t>& batch_ids, uint32_t key0, uint32_t key1, int64_t hop, int64_t size,
    bool replace, bool positions) {
    const CsrView<Index> A = csr_view(indptr, indices);
    require(data.size() == indices.size(), "data", "needs one element per entry");
    const SelectorView<Index> Q = selector_view(batch_ptr, vertices, batch_ids, A.num_rows);
    const DrawArguments draw = draw_arguments(key0, key1, hop, size, replace);
    return run<Index>([&] { return weighted_rows(A, data.data(), Q, draw, positions); });
}

// O(m + entries of the rows).
template <class Index>
nb::tuple take_rows(
    const In<int64_t>& indptr, const In<Index>& indices, const In<int64_t>& batch_ptr, const In<Index>& vertices,
    const In<int64_t>& batch_ids, bool positions) {
    const CsrView<Index> A = csr_view(indptr, indices);
    const SelectorView<Index> Q = selector_view(batch_ptr, vertices, batch_ids, A.num_rows);
    return run<Index>([&] { return whole_rows(A, Q, positions); });
}

template <class Index, class Real>
void bind_weighted(nb::module_& m) {
    m.def("sample_rows_weighted", &sample_rows_weighted<Index, Real>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("data").noconvert(), nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(),
          nb::arg("batch_ids").noconvert(), nb::arg("key0"), nb::arg("key1"), nb::arg("hop"), nb::arg("size"),
          nb::arg("replace"), nb::arg("positions"));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("take_rows", &take_rows<Index>, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(), nb::arg("batch_ids").noconvert(),
          nb::arg("positions"));
    bind_weighted<Index, float>(m);
    bind_weighted<Index, double>(m);
}

}  // namespace

void bind_rows(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
