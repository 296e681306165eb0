// Numerators and values of extracted entries, and the graph's own weights of drawn ones (docs/law.md, sections 2 and 6).
//
// Extracted entries are those of k stacked matrices (Stacked); entry x lies in column columns[x] of its batch's src, of which there are
// src_ptr[i + 1] - src_ptr[i], and is entry positions[x] of A. Where positions are null all entries of a row weigh the same.
#include "chunks.h"
#include "spsample/quantisation.h"

using namespace spsample;

template <class W>
struct ValueOf {
    using Real = float;
};
template <>
struct ValueOf<RowWeights<ArrayWeights<double>>> {
    using Real = double;
};
using Real = ValueOf<Weights>::Real;

__device__ inline bool is_finite(double x) { return (double_bits(x) >> 52 & 0x7FF) != 0x7FF; }
__device__ inline bool is_finite(float x) { return (float_bits(x) >> 23 & 0xFF) != 0xFF; }

#define SPSAMPLE_STACKED_PARAMETERS                                                                                  \
    const int64_t *rows_entry_ptr, const int64_t *rows_indptr, const Index *columns, const int64_t *positions, int64_t total, \
        const int64_t *src_ptr
#define SPSAMPLE_STACKED \
    Stacked { Q_batch_ptr, rows_entry_ptr, rows_indptr, Q_batches }

// sums (src): adds each entry's numerator to its column's. shifts (batches): K; null where every entry counts 1. One thread an
// entry.
extern "C" __global__ void add_numerators(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS,
                                          SPSAMPLE_STACKED_PARAMETERS, const int64_t* shifts, int64_t power, uint64_t* sums) {
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const Stacked rows = SPSAMPLE_STACKED;
    for (int64_t x = thread_index(); x < total; x += thread_count()) {
        const int64_t batch = rows.batch_of(x);
        uint64_t numerator = 1;
        if (shifts) {
            const int64_t row = Q_vertices[rows.row_of(batch, x)];
            const int64_t entry = positions ? positions[x] - A.begin(row) : 0;
            numerator = quantize(weights(A, row, entry), shifts[batch], static_cast<int32_t>(power));
        }
        atomic_add(sums + src_ptr[batch] + columns[x], numerator);
    }
}

// A value as it is returned; notes the first that is not finite.
__device__ inline Real rounded(double value, int64_t x, uint64_t* first_bad) {
    const Real result = static_cast<Real>(value);
    if (!is_finite(result)) atomic_min(first_bad, static_cast<uint64_t>(x));
    return result;
}

// A_iv times the factor of v, in binary64: into `products` (total), or, where that is null, rounded into `values` (total).
extern "C" __global__ void multiply_entries(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS,
                                            SPSAMPLE_STACKED_PARAMETERS, const double* factors, double* products, Real* values,
                                            uint64_t* first_bad) {
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const Stacked rows = SPSAMPLE_STACKED;
    for (int64_t x = thread_index(); x < total; x += thread_count()) {
        const int64_t batch = rows.batch_of(x), row = Q_vertices[rows.row_of(batch, x)];
        const int64_t entry = positions ? positions[x] - A.begin(row) : 0;
        const double product = static_cast<double>(weights(A, row, entry)) * factors[src_ptr[batch] + columns[x]];
        if (products) {
            products[x] = product;
        } else {
            values[x] = rounded(product, x, first_bad);
        }
    }
}

// sums (rows): of each row's products, added up in entry order from 0.0; NaN where that is not finite. One thread a row: the
// law's order leaves no other way; the products of neighbouring rows lie side by side.
extern "C" __global__ void sum_rows(SPSAMPLE_SELECTOR_PARAMETERS, const int64_t* rows_entry_ptr, const int64_t* rows_indptr,
                                    const double* products, double* sums) {
    const Stacked rows = SPSAMPLE_STACKED;
    for (int64_t r = thread_index(); r < Q_rows; r += thread_count()) {
        const int64_t batch = part_of(Q_batch_ptr, Q_batches, r), end = rows.end(batch, r);
        double sum = 0.0;
#pragma unroll 8
        for (int64_t x = rows.begin(batch, r); x < end; ++x) sum += products[x];
        sums[r] = is_finite(sum) ? sum : double_from_bits(uint64_t(0x7FF8) << 48);
    }
}

// Each product divided by its row's sum, where that is not 0, and rounded into `values` (total). One thread an entry.
extern "C" __global__ void divide_entries(SPSAMPLE_SELECTOR_PARAMETERS, const int64_t* rows_entry_ptr, const int64_t* rows_indptr,
                                          int64_t total, const double* products, const double* sums, Real* values,
                                          uint64_t* first_bad) {
    const Stacked rows = SPSAMPLE_STACKED;
    for (int64_t x = thread_index(); x < total; x += thread_count()) {
        const double sum = sums[rows.row_of(rows.batch_of(x), x)];
        values[x] = rounded(sum != 0.0 ? products[x] / sum : products[x], x, first_bad);
    }
}

// values[e] = A_iv of every entry of the stacked rows: the stored weight, or 1/d rounded to float. indptr, entry_ptr: as of stacked
// rows. positions: of the entries in A; not read where A is row-normalised. One warp for 256 entries: whole rows may be long.
extern "C" __global__ void own_weights(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS,
                                       const int64_t* indptr, const int64_t* entry_ptr, const int64_t* positions, Real* values) {
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const Stacked rows = {Q_batch_ptr, entry_ptr, indptr, Q_batches};
    for_each_item(entry_ptr, Q_batches, [&](int64_t batch, int64_t e) {
        const int64_t row = Q_vertices[rows.row_of(batch, e)];
        values[e] = static_cast<Real>(weights(A, row, positions ? positions[e] - A.begin(row) : 0));
    });
}
