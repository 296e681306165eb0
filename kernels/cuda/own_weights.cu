// The graph's own weights of drawn entries (GraphSAGE's values).
#include "device.h"

using namespace spsample;

template <class Kind>
struct ValueOf {
    using Type = float;
};
template <class Real>
struct ValueOf<ArrayWeights<Real>> {
    using Type = Real;
};
using Value = ValueOf<SPSAMPLE_WEIGHTS>::Type;

// values[e] = A_iv of every entry of the stacked rows: the stored weight, or 1/d rounded to float. indptr, entry_ptr: as of stacked
// rows. positions: of the entries in A; not read where A is row-normalised. One thread a row.
extern "C" __global__ void own_weights(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS,
                                       const int64_t* indptr, const int64_t* entry_ptr, const int64_t* positions, Value* values) {
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const Selector Q = SPSAMPLE_SELECTOR;
    for (int64_t r = thread_index(); r < Q.num_rows; r += thread_count()) {
        const int64_t row = Q.vertices[r], batch = Q.batch_of(r), begin = A.begin(row);
        const int64_t first = entry_ptr[batch] + indptr[r + batch], last = entry_ptr[batch] + indptr[r + batch + 1];
        for (int64_t e = first; e < last; ++e) values[e] = static_cast<Value>(weights(A, row, positions ? positions[e] - begin : 0));
    }
}
