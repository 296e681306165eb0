// The graph's own weights of drawn entries (GraphSAGE's values).
#include "chunks.h"

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
// rows. positions: of the entries in A; not read where A is row-normalised. One warp for 256 entries: whole rows may be long.
extern "C" __global__ void own_weights(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_WEIGHTS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS,
                                       const int64_t* indptr, const int64_t* entry_ptr, const int64_t* positions, Value* values) {
    const Rows A = SPSAMPLE_ROWS;
    const Weights weights = SPSAMPLE_ROW_WEIGHTS;
    const Stacked rows = {Q_batch_ptr, entry_ptr, indptr, Q_batches};
    for_each_item(entry_ptr, Q_batches, [&](int64_t batch, int64_t e) {
        const int64_t row = Q_vertices[rows.row_of(batch, e)];
        values[e] = static_cast<Value>(weights(A, row, positions ? positions[e] - A.begin(row) : 0));
    });
}
