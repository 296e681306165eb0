// Numerators of src columns and values of entries, read off an extraction (docs/law.md, sections 2 and 6).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "bindings.h"
#include "parallel.h"
#include "quantisation.h"
#include "stacking.h"

namespace spsample {
namespace {

constexpr int64_t kRowChunk = 64;

// --- extracted_numerators ------------------------------------------------------------------------------------------

// numerators: src_ptr[num_batches] elements. rows: the extraction, its local columns and positions (positions may be
// null where the weights do not look at them). O(src + extracted entries); batches in parallel, one thread per batch.
template <class Index, class Weights>
void sum_extracted(
    const CsrView<Index>& A, const Weights& weights, const SelectorView<Index>& Q, const StackedView<Index>& rows,
    const int64_t* src_ptr, const QuantisationRule& rule, Buffer<uint64_t>& numerators) {
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

// --- entry_values --------------------------------------------------------------------------------------------------

// One row: A_iv c_v in binary64, then optionally divided by their sum from 0.0 in entry order (left where that is 0),
// then rounded once to Real. scratch holds the row. False where a value, or the sum, is too large for its type.
template <class Real, class Weights>
bool row_values(
    const Weights& weights, int64_t degree, const int64_t* positions, const double* factors, int64_t count,
    bool normalize, double* scratch, Real* values) {
    double sum = 0.0;
    for (int64_t e = 0; e < count; ++e) {
        scratch[e] = weights(positions ? positions[e] : 0, degree) * factors[e];
        sum += scratch[e];
    }
    if (!std::isfinite(sum)) sum = std::numeric_limits<double>::quiet_NaN();  // normalised values are NaN, too
    bool finite = true;
    for (int64_t e = 0; e < count; ++e) {
        const double value = normalize && sum != 0.0 ? scratch[e] / sum : scratch[e];
        values[e] = static_cast<Real>(value);
        finite = finite && std::isfinite(values[e]);
    }
    return finite;
}

// The arrays of an entry_values call.
template <class Index>
struct ValueArguments {
    CsrView<Index> A;
    SelectorView<Index> Q;
    StackedView<Index> rows;
    const int64_t* src_ptr;
    const double* factors;  // c_v: one per src vertex
    bool normalize;
};

// values: one per extracted entry. `overflowed` gets the first entry whose value is not finite, or -1. O(entries).
template <class Real, class Index, class Weights>
Buffer<Real> compute_values(const ValueArguments<Index>& in, const Weights& weights, int64_t* overflowed) {
    Buffer<Real> values(in.rows.num_entries);
    std::atomic<bool> finite{true};
    struct Scratch {
        std::vector<double> factors, products;
    };
    const auto make_scratch = [] { return Scratch(); };
    const auto fill = [&](Scratch& scratch, int64_t batch, int64_t begin, int64_t end) {
        const double* factors = in.factors + in.src_ptr[batch];
        const uint64_t num_src = static_cast<uint64_t>(in.src_ptr[batch + 1] - in.src_ptr[batch]);
        for (int64_t r = begin; r < end; ++r) {
            const int64_t first = in.rows.begin(batch, r);
            const int64_t count = in.rows.end(batch, r) - first;
            scratch.factors.resize(static_cast<size_t>(count));
            scratch.products.resize(static_cast<size_t>(count));
            for (int64_t e = 0; e < count; ++e) {
                const uint64_t column = static_cast<uint64_t>(in.rows.columns[first + e]);
                require(column < num_src, "columns", "a local column is not below the batch's src");
                scratch.factors[static_cast<size_t>(e)] = factors[column];
            }
            const int64_t* positions = in.rows.positions ? in.rows.positions + first : nullptr;
            const bool row_finite = row_values(
                weights, in.A.degree(in.Q.vertices[r]), positions, scratch.factors.data(), count, in.normalize,
                scratch.products.data(), values.data() + first);
            if (!row_finite) finite = false;
        }
    };
    const ThreadsFor threads(in.rows.num_entries);
    parallel_rows(in.Q.batch_ptr, in.Q.num_batches, kRowChunk, make_scratch, fill);
    *overflowed = -1;
    if (!finite) {
        const Real* begin = values.data();
        *overflowed = std::find_if(begin, begin + values.size(), [](Real x) { return !std::isfinite(x); }) - begin;
    }
    return values;
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
        using Real = std::conditional_t<std::is_same_v<decltype(weights), ArrayWeights<double>>, double, float>;
        Buffer<Real> values;
        int64_t overflowed = -1;
        {
            nb::gil_scoped_release release;
            values = compute_values<Real>(in, weights, &overflowed);
        }
        return nb::make_tuple(to_numpy(std::move(values)), overflowed);
    });
}

// --- bindings ------------------------------------------------------------------------------------------------------

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
