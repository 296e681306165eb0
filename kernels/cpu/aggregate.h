// Weighted sums of rows, and the choice of instruction set at run time (as in simd.h). Equal bits on all of them: each number of a sum is added
// up in the order of the row's entries, products are rounded before they are added.
#pragma once

#include <cstdint>

#include "spsample/config.h"

namespace spsample {

// A sparse A with values, and the dense x that it is multiplied by, `dim` numbers a row, in C order.
template <class Real>
struct RowSums {
    static constexpr int64_t kEntriesAhead = 12;
    static constexpr int64_t kLine = 64 / sizeof(Real);

    const int64_t* indptr;
    const int64_t* indices;
    const Real* values;
    const Real* x;
    int64_t num_entries, dim;
    int64_t stride;  // from row to row of the result

    const Real* source(int64_t entry) const { return x + indices[entry] * dim; }

    // Asks memory for the source of an entry that comes soon.
    void fetch_ahead_of(int64_t entry) const {
        if (entry + kEntriesAhead >= num_entries) return;
        const Real* const row = source(entry + kEntriesAhead);
        for (int64_t j = 0; j < dim; j += kLine) SPSAMPLE_PREFETCH_NEAR(row + j);
        SPSAMPLE_PREFETCH_NEAR(row + dim - 1);
    }
};

// out[r stride .. + dim) = the sum of values[e] x[indices[e]] over the entries e of the rows r in [begin, end); dim > 0.
using SumRows = void (*)(const RowSums<float>& sums, int64_t begin, int64_t end, float* out);

void sum_rows_avx2(const RowSums<float>& sums, int64_t begin, int64_t end, float* out);
void sum_rows_avx512(const RowSums<float>& sums, int64_t begin, int64_t end, float* out);

}  // namespace spsample
