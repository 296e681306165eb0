// aggregate_rows: y = A x, the rows of x read where they lie; a layer's means and sums, and their way back with A^T.
//
// indptr (m + 1,), indices (entries,) rows of x, values (entries,), x (rows, dim), out (m, dim), of float or double. O(entries dim), threads by
// rows. No result depends on the number of threads or the instruction set (aggregate.h).
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
        Real* const to = out + r * sums.dim;
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

template <class Real>
void aggregate_rows(
    const In<int64_t>& indptr, const In<int64_t>& indices, const In<Real>& values, const In<Real>& x, std::pair<int64_t, int64_t> shape,
    const InOut<Real>& out) {
    const int64_t count = static_cast<int64_t>(indptr.size()) - 1, entries = static_cast<int64_t>(indices.size());
    const auto [num_rows, dim] = shape;
    require_pointers(indptr, entries, "indptr");
    require(static_cast<int64_t>(values.size()) == entries, "values", "needs one element per entry");
    require(num_rows >= 0 && dim >= 0 && checked_product(num_rows, dim) == static_cast<int64_t>(x.size()), "shape", "must be that of `x`");
    require(static_cast<int64_t>(out.size()) == checked_product(count, dim), "out", "needs one row per row of A");
    const RowSums<Real> sums{indptr.data(), indices.data(), values.data(), x.data(), entries, dim};
    Real* const to = out.data();
    const nb::gil_scoped_release release;
    const ThreadsFor threads(checked_product(entries, dim));
    if (!all_below(sums.indices, entries, num_rows)) throw std::out_of_range("indices: outside the rows of x");
    if (dim == 0) return;
    const auto sum = sum_function<Real>();
    parallel_chunks(count, std::max<int64_t>(kNumbers / dim, 1), [&](int64_t begin, int64_t end) { sum(sums, begin, end, to); });
}

template <class Real>
void bind_for(nb::module_& m) {
    m.def("aggregate_rows", &aggregate_rows<Real>, nb::arg("indptr"), nb::arg("indices"), nb::arg("values").noconvert(),
          nb::arg("x").noconvert(), nb::arg("shape"), nb::arg("out"), "out = A x of a sparse A and a dense x (flat, of `shape`).");
}

}  // namespace

void bind_aggregate(nb::module_& m) {
    bind_for<float>(m);
    bind_for<double>(m);
}

}  // namespace spsample
