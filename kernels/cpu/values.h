// Numerators of src columns and values of entries, read off an extraction (docs/law.md, sections 2 and 6).
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "bindings.h"
#include "parallel.h"
#include "quantisation.h"
#include "scratch.h"
#include "stacking.h"

namespace spsample {

// A stacked row's entries.
template <class Index>
struct ExtractedRow {
    const Index* columns;      // local
    const int64_t* positions;  // in A, or null
    int64_t count;
    int64_t degree;  // of the row in A
};

template <class Index>
ExtractedRow<Index> extracted_row(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const StackedView<Index>& rows, int64_t batch, int64_t row) {
    const int64_t begin = rows.begin(batch, row);
    const int64_t* positions = rows.positions ? rows.positions + begin : nullptr;
    return {rows.columns + begin, positions, rows.end(batch, row) - begin, A.degree(Q.vertices[row])};
}

// O(count), without a branch per column.
template <class Index>
void require_columns(const ExtractedRow<Index>& row, int64_t num_src) {
    require(in_range(row.columns, row.count, num_src), "columns", "a local column is not below the batch's src");
}

// Adds the numerators of a row's entries up by column. O(count).
template <class Index, class Weights>
void add_row(const ExtractedRow<Index>& row, const Weights& weights, const int64_t* shift, int32_t power, uint64_t* sums) {
    if constexpr (std::is_same_v<Weights, UnitWeights> || std::is_same_v<Weights, RowNormalizedWeights>) {  // alike in a row
        const uint64_t numerator = shift && row.count > 0 ? quantize(weights(0, row.degree), *shift, power) : 1;
        for (int64_t e = 0; e < row.count; ++e) sums[row.columns[e]] += numerator;
    } else {
        for (int64_t e = 0; e < row.count; ++e) {
            sums[row.columns[e]] += shift ? quantize(weights(row.positions[e], row.degree), *shift, power) : 1;
        }
    }
}

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
            const ExtractedRow<Index> row = extracted_row(A, Q, rows, i, r);
            require_columns(row, num_src);
            add_row(row, weights, rule.shifts ? rule.shifts + i : nullptr, rule.power, sums);
        }
        for (int64_t v = 0; v < num_src; ++v) sums[v] = raise(sums[v], rule.column_power);
    });
}

// A_iv c_v of a row's entries (`factors` are c of the batch's src), each rounded once to Real. False where one is too large for it.
template <class Real, class Index, class Weights>
bool row_values(const ExtractedRow<Index>& row, const Weights& weights, const double* factors, Real* values) {
    bool finite = true;
    for (int64_t e = 0; e < row.count; ++e) {
        values[e] = static_cast<Real>(weights(row.positions ? row.positions[e] : 0, row.degree) * factors[row.columns[e]]);
        finite &= std::abs(values[e]) <= std::numeric_limits<Real>::max();
    }
    return finite;
}

// The same divided by their sum, from 0.0 in entry order, before they are rounded (left where that is 0). `products` holds the row. False
// where a value, or the sum, is too large for its type.
template <class Real, class Index, class Weights>
bool normalized_row_values(
    const ExtractedRow<Index>& row, const Weights& weights, const double* factors, double* products, Real* values) {
    double sum = 0.0;
    for (int64_t e = 0; e < row.count; ++e) {
        products[e] = weights(row.positions ? row.positions[e] : 0, row.degree) * factors[row.columns[e]];
        sum += products[e];
    }
    if (!std::isfinite(sum)) sum = std::numeric_limits<double>::quiet_NaN();  // then the values are NaN, too
    bool finite = true;
    for (int64_t e = 0; e < row.count; ++e) {
        values[e] = static_cast<Real>(sum != 0.0 ? products[e] / sum : products[e]);
        finite &= std::abs(values[e]) <= std::numeric_limits<Real>::max();
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

constexpr int64_t kValueRows = 64;  // of one task

// values: one per extracted entry. `overflowed` gets the first entry whose value is not finite, or -1. O(entries).
template <class Real, class Index, class Weights>
Buffer<Real> compute_values(const ValueArguments<Index>& in, const Weights& weights, int64_t* overflowed) {
    Buffer<Real> values(in.rows.num_entries);
    std::atomic<bool> finite{true};
    const auto make_products = [] { return std::vector<double>(); };
    const auto fill = [&](std::vector<double>& products, int64_t batch, int64_t begin, int64_t end) {
        const double* factors = in.factors + in.src_ptr[batch];
        const int64_t num_src = in.src_ptr[batch + 1] - in.src_ptr[batch];
        bool rows_finite = true;
        for (int64_t r = begin; r < end; ++r) {
            const ExtractedRow<Index> row = extracted_row(in.A, in.Q, in.rows, batch, r);
            require_columns(row, num_src);
            Real* out = values.data() + in.rows.begin(batch, r);
            rows_finite &= in.normalize ? normalized_row_values(row, weights, factors, grown(products, row.count), out)
                                        : row_values(row, weights, factors, out);
        }
        if (!rows_finite) finite = false;
    };
    const ThreadsFor threads(in.rows.num_entries);
    parallel_rows(in.Q.batch_ptr, in.Q.num_batches, kValueRows, make_products, fill);
    *overflowed = -1;
    if (!finite) {
        const Real* begin = values.data();
        *overflowed = std::find_if(begin, begin + values.size(), [](Real x) { return !std::isfinite(x); }) - begin;
    }
    return values;
}

// The type of the values of a matrix with such weights.
template <class Weights>
using ValueOf = std::conditional_t<std::is_same_v<Weights, ArrayWeights<double>>, double, float>;

}  // namespace spsample
