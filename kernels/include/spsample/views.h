// Plain views of the caller's arrays, as the kernels take them. They own nothing.
#pragma once

#include "spsample/config.h"

namespace spsample {

// A in CSR, or a block of its rows: row = target. indptr has num_rows + 1 elements, indices num_entries = indptr[num_rows]; columns lie
// below num_columns.
template <class Index>
struct CsrView {
    const int64_t* indptr;
    const Index* indices;
    int64_t num_rows;
    int64_t num_entries;
    int64_t num_columns;
    const Index* ids;  // the vertex of each row, or null where row r is vertex r

    SPSAMPLE_HD int64_t begin(int64_t row) const { return indptr[row]; }
    SPSAMPLE_HD int64_t degree(int64_t row) const { return indptr[row + 1] - indptr[row]; }

    // The vertex that keys the draws of a row.
    SPSAMPLE_HD int64_t vertex(int64_t row) const { return ids ? static_cast<int64_t>(ids[row]) : row; }
};

// Q of k stacked batches: batch i selects the rows vertices[batch_ptr[i]] .. vertices[batch_ptr[i + 1] - 1] of A.
// batch_ptr has num_batches + 1 elements, vertices num_rows = batch_ptr[num_batches], batch_ids num_batches.
template <class Index>
struct SelectorView {
    const int64_t* batch_ptr;
    const Index* vertices;
    const int64_t* batch_ids;
    int64_t num_batches;
    int64_t num_rows;
};

// The weight of an entry from its position in A and the number of entries of its row. Stored weights keep their type: the
// conversion of a float is arithmetic, which may flush subnormal numbers.
struct UnitWeights {
    SPSAMPLE_HD double operator()(int64_t, int64_t) const { return 1.0; }
};

struct RowNormalizedWeights {
    SPSAMPLE_HD double operator()(int64_t, int64_t degree) const { return 1.0 / static_cast<double>(degree); }
};

template <class Real>
struct ArrayWeights {
    const Real* data;
    SPSAMPLE_HD Real operator()(int64_t position, int64_t) const { return data[position]; }
};

}  // namespace spsample
