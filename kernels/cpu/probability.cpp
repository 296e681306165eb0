// Integer probabilities (docs/law.md, section 2): exponents, numerators and their sums by column.
//
// All sums are of unsigned integers: exact, and the same in any order and on any number of threads. The caller chooses
// the exponent K so that no sum passes 2^62 (the frontier rule's headroom).
#include <type_traits>
#include <vector>

#include "bindings.h"
#include "merge.h"
#include "parallel.h"
#include "stacked.h"
#include "spsample/quantize.h"

namespace spsample {
namespace {

constexpr int64_t kRowChunk = 1024;

// --- row_exponents -------------------------------------------------------------------------------------------------

template <class Weights>
int32_t row_exponent(const Weights& weights, int64_t begin, int64_t end) {
    if (begin == end) return kNoExponent;
    return decompose(weights(begin, end - begin)).exponent;
}

template <class Real>
int32_t row_exponent(const ArrayWeights<Real>& weights, int64_t begin, int64_t end) {
    return exponent_range(weights.data + begin, end - begin).largest;
}

// exponents: num_rows elements. O(rows + entries).
nb::object row_exponents(const In<int64_t>& indptr, const std::optional<AnyIn>& data, bool row_normalized) {
    require(indptr.size() >= 1, "indptr", "needs at least one element");
    const int64_t num_rows = static_cast<int64_t>(indptr.size()) - 1;
    const int64_t* pointers = indptr.data();
    Buffer<int32_t> exponents(num_rows);
    with_weights(data, row_normalized, pointers[num_rows], [&](auto weights) {
        nb::gil_scoped_release release;
        parallel_chunks(num_rows, 4 * kRowChunk, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) exponents[r] = row_exponent(weights, pointers[r], pointers[r + 1]);
        });
    });
    return to_numpy(std::move(exponents));
}

// --- column_totals -------------------------------------------------------------------------------------------------

void zero(Buffer<uint64_t>& values) {
    parallel_chunks(values.size(), 1 << 16, [&](int64_t begin, int64_t end) {
        std::fill(values.data() + begin, values.data() + end, uint64_t(0));
    });
}

// Other threads may add to the same sum. (An atomic of C++17 cannot be laid over an array's element.)
void add_relaxed(uint64_t& sum, uint64_t summand) { __atomic_fetch_add(&sum, summand, __ATOMIC_RELAXED); }

// totals: one element per column; every entry of A is added to its column's. O(columns + entries).
template <class Index, class Weights>
void sum_columns(const CsrView<Index>& A, const Weights& weights, const Rule& rule, Buffer<uint64_t>& totals) {
    zero(totals);
    uint64_t* sums = totals.data();
    parallel_chunks(A.num_rows, kRowChunk, [&](int64_t begin, int64_t end) {
        const int64_t first = A.begin(begin);
        require(in_range(A.indices + first, A.begin(end) - first, A.num_columns), "indices", "a column is not below the number of columns");
        for (int64_t r = begin; r < end; ++r) {
            for_each_numerator(A, weights, rule, 0, r, [&](int64_t position, uint64_t numerator) {
                add_relaxed(sums[A.indices[position]], numerator);
            });
        }
    });
    parallel_chunks(totals.size(), 1 << 16, [&](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) sums[v] = raise(sums[v], rule.column_power);
    });
}

template <class Index>
nb::object column_totals(
    const In<int64_t>& indptr, const In<Index>& indices, const std::optional<AnyIn>& data, bool row_normalized,
    const std::optional<In<int64_t>>& shifts, int power, int column_power, const std::optional<int64_t>& num_columns) {
    const CsrView<Index> A = csr_view_over<Index>(indptr, indices, num_columns);
    const Rule rule = make_rule(shifts, power, column_power, 1);
    Buffer<uint64_t> totals(A.num_columns);
    with_weights(data, row_normalized, A.num_entries, [&](auto weights) {
        nb::gil_scoped_release release;
        sum_columns(A, weights, rule, totals);
    });
    return to_numpy(std::move(totals));
}

// --- extracted_numerators ------------------------------------------------------------------------------------------

// numerators: src_ptr[num_batches] elements. rows: the extraction, its local columns and positions (positions may be
// null where the weights do not look at them). O(src + extracted entries); batches in parallel, one thread per batch.
template <class Index, class Weights>
void sum_extracted(
    const CsrView<Index>& A, const Weights& weights, const SelectorView<Index>& Q, const StackedView<Index>& rows,
    const int64_t* src_ptr, const Rule& rule, Buffer<uint64_t>& numerators) {
    const ThreadsFor threads(4 * rows.num_entries + numerators.size());
    parallel_chunks(Q.num_batches, 1, [&](int64_t i, int64_t) {
        uint64_t* sums = numerators.data() + src_ptr[i];
        const int64_t num_src = src_ptr[i + 1] - src_ptr[i];
        std::fill(sums, sums + num_src, uint64_t(0));
        for (int64_t r = Q.batch_ptr[i]; r < Q.batch_ptr[i + 1]; ++r) {
            const int64_t degree = A.degree(Q.vertices[r]);
            for (int64_t e = rows.begin(i, r); e < rows.end(i, r); ++e) {
                const uint64_t column = static_cast<uint64_t>(rows.columns[e]);
                const bool inside = column < static_cast<uint64_t>(num_src);
                require(inside, "columns", "a local column is not below the batch's src");
                const auto weight = weights(rows.positions ? rows.positions[e] : 0, degree);
                sums[column] += rule.shifts ? quantize(weight, rule.shifts[i], rule.power) : 1;
            }
        }
        for (int64_t v = 0; v < num_src; ++v) sums[v] = raise(sums[v], rule.column_power);
    });
}

template <class Index>
nb::object extracted_numerators(
    const In<int64_t>& indptr, const In<Index>& indices, const std::optional<AnyIn>& data, bool row_normalized,
    const In<int64_t>& batch_ptr, const In<Index>& vertices, const In<int64_t>& batch_ids, const In<int64_t>& entry_ptr,
    const In<int64_t>& stacked_indptr, const In<Index>& columns, const std::optional<In<int64_t>>& positions,
    const In<int64_t>& src_ptr, const std::optional<In<int64_t>>& shifts, int power, int column_power) {
    const CsrView<Index> A = csr_view<Index>(indptr, indices);
    const SelectorView<Index> Q = selector_view<Index>(batch_ptr, vertices, batch_ids, A.num_rows);
    const Rule rule = make_rule(shifts, power, column_power, Q.num_batches);
    const StackedView<Index> rows = stacked_view<Index>(batch_ptr, entry_ptr, stacked_indptr, columns, positions);
    require_positions(rows, data.has_value(), A.num_entries);
    require(src_ptr.size() == batch_ptr.size(), "src_ptr", "needs one element per batch and one more");
    require_pointers(src_ptr, src_ptr.data()[Q.num_batches], "src_ptr");
    Buffer<uint64_t> numerators(src_ptr.data()[Q.num_batches]);
    with_weights(data, row_normalized, A.num_entries, [&](auto weights) {
        nb::gil_scoped_release release;
        sum_extracted(A, weights, Q, rows, src_ptr.data(), rule, numerators);
    });
    return to_numpy(std::move(numerators));
}

// --- bindings ------------------------------------------------------------------------------------------------------

template <class Index>
void bind_probability_for(nb::module_& m) {
    const auto indptr = nb::arg("indptr");
    const auto indices = nb::arg("indices").noconvert();
    const auto data = nb::arg("data").noconvert().none();
    const auto batch_ptr = nb::arg("batch_ptr");
    const auto vertices = nb::arg("vertices");
    const auto batch_ids = nb::arg("batch_ids");
    const auto shifts = nb::arg("shifts").none();
    m.def("column_totals", &column_totals<Index>, indptr, indices, data, nb::arg("row_normalized"), shifts,
          nb::arg("power"), nb::arg("column_power"), nb::arg("num_columns") = nb::none(),
          "Column sums of all entries' numerators, to column_power.");
    m.def("extracted_numerators", &extracted_numerators<Index>, indptr, indices, data, nb::arg("row_normalized"),
          batch_ptr, vertices, batch_ids, nb::arg("entry_ptr"), nb::arg("stacked_indptr"),
          nb::arg("columns"), nb::arg("positions").none(), nb::arg("src_ptr"),
          shifts, nb::arg("power"), nb::arg("column_power"), "Numerator of every src column, from an extraction.");
}

}  // namespace

void bind_probability(nb::module_& m) {
    m.def("row_exponents", &row_exponents, nb::arg("indptr"), nb::arg("data").noconvert().none(),
          nb::arg("row_normalized"), "Largest binary exponent of each row's positive entries.");
    m.def(
        "quantize", [](double w, int64_t shift, int power) { return quantize(w, shift, power); }, nb::arg("weight"),
        nb::arg("shift"), nb::arg("power"), "Numerator of one weight under exponent K = shift and entry power 1 or 2.");
    m.def(
        "row_shift",
        [](const In<double>& weights) { return row_shift(weights.data(), static_cast<int64_t>(weights.size())); },
        nb::arg("weights"), "The row rule's exponent K of one row of weights.");
    bind_probability_for<int32_t>(m);
    bind_probability_for<int64_t>(m);
}

}  // namespace spsample
