// aggregate_rows: y = A x, the rows of x read where they lie; a layer's means and sums, and their way back with A^T.
// aggregate_with_targets: [x_targets | A x], of targets that are the first rows of x.
//
// indptr (m + 1,), indices (entries,) rows of x, values (entries,), x (rows, dim), out (m, dim) or (m, 2 dim), of float or double.
// O(entries dim), threads by rows. No result depends on the number of threads or the instruction set (aggregate.h).
#include "aggregate.h"

#include <algorithm>

#include "bindings.h"
#include "simd.h"

namespace spsample {
namespace {

constexpr int64_t kNumbers = 1 << 14;  // of the result, in a chunk

template <class Real>
void sum_rows(const RowSums<Real>& sums, int64_t begin, int64_t end, Real* out) {
    for (int64_t r = begin; r < end; ++r) {
        Real* const to = out + r * sums.stride;
        std::fill_n(to, sums.dim, Real(0));
        for (int64_t e = sums.indptr[r]; e < sums.indptr[r + 1]; ++e) {
            sums.fetch_ahead_of(e);
            const Real value = sums.values[e];
            const Real* const row = sums.source(e);
            for (int64_t j = 0; j < sums.dim; ++j) to[j] += value * row[j];
        }
    }
}

template <class Real>
auto sum_function() {
#if SPSAMPLE_X86
    if constexpr (sizeof(Real) == sizeof(float)) {
        if (&instruction_set() == &kAvx512) return &sum_rows_avx512;
        if (&instruction_set() == &kAvx2) return &sum_rows_avx2;
    }
#endif
    return &sum_rows<Real>;
}

// `parts`: of a row of the result, whose last part is the sum.
template <class Real>
RowSums<Real> row_sums(
    const In<int64_t>& indptr, const In<int64_t>& indices, const In<Real>& values, const In<Real>& x, std::pair<int64_t, int64_t> shape,
    int64_t parts, size_t size) {
    const int64_t count = static_cast<int64_t>(indptr.size()) - 1, entries = static_cast<int64_t>(indices.size());
    const auto [num_rows, dim] = shape;
    require_pointers(indptr, entries, "indptr");
    require(static_cast<int64_t>(values.size()) == entries, "values", "needs one element per entry");
    require(num_rows >= 0 && dim >= 0 && checked_product(num_rows, dim) == static_cast<int64_t>(x.size()), "shape", "must be that of `x`");
    const int64_t stride = checked_product(parts, dim);
    require(static_cast<int64_t>(size) == checked_product(count, stride), "out", "needs one row per row of A");
    return {indptr.data(), indices.data(), values.data(), x.data(), entries, dim, stride};
}

// The sums of `count` rows, those of a chunk after before(begin, end).
template <class Real, class Before>
void sum_all(const RowSums<Real>& sums, int64_t count, int64_t num_rows, Real* out, Before&& before) {
    const ThreadsFor threads(checked_product(sums.num_entries, sums.dim));
    if (!all_below(sums.indices, sums.num_entries, num_rows)) throw std::out_of_range("indices: outside the rows of x");
    if (sums.dim == 0) return;
    const auto sum = sum_function<Real>();
    parallel_chunks(count, std::max<int64_t>(kNumbers / sums.dim, 1), [&](int64_t begin, int64_t end) {
        before(begin, end);
        sum(sums, begin, end, out);
    });
}

template <class Real>
void aggregate_rows(
    const In<int64_t>& indptr, const In<int64_t>& indices, const In<Real>& values, const In<Real>& x, std::pair<int64_t, int64_t> shape,
    const InOut<Real>& out) {
    const RowSums<Real> sums = row_sums(indptr, indices, values, x, shape, 1, out.size());
    const int64_t count = static_cast<int64_t>(indptr.size()) - 1;
    Real* const to = out.data();
    const nb::gil_scoped_release release;
    sum_all(sums, count, shape.first, to, [](int64_t, int64_t) {});
}

template <class Real>
void aggregate_with_targets(
    const In<int64_t>& indptr, const In<int64_t>& indices, const In<Real>& values, const In<Real>& x, std::pair<int64_t, int64_t> shape,
    const InOut<Real>& out) {
    const RowSums<Real> sums = row_sums(indptr, indices, values, x, shape, 2, out.size());
    const int64_t count = static_cast<int64_t>(indptr.size()) - 1;
    require(count <= shape.first, "x", "needs a row for every target");
    Real* const to = out.data();
    const nb::gil_scoped_release release;
    sum_all(sums, count, shape.first, to + sums.dim, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) std::copy_n(sums.x + r * sums.dim, sums.dim, to + r * sums.stride);
    });
}

template <class Real>
void bind_for(nb::module_& m) {
    m.def("aggregate_rows", &aggregate_rows<Real>, nb::arg("indptr"), nb::arg("indices"), nb::arg("values").noconvert(),
          nb::arg("x").noconvert(), nb::arg("shape"), nb::arg("out"), "out = A x of a sparse A and a dense x (flat, of `shape`).");
    m.def("aggregate_with_targets", &aggregate_with_targets<Real>, nb::arg("indptr"), nb::arg("indices"), nb::arg("values").noconvert(),
          nb::arg("x").noconvert(), nb::arg("shape"), nb::arg("out"), "out = [x_targets | A x]: the targets are the first rows of x.");
}

}  // namespace

void bind_aggregate(nb::module_& m) {
    bind_for<float>(m);
    bind_for<double>(m);
}

}  // namespace spsample
