// The row law over stacked rows, uniform or by numerators of two values, for kernels that do more than draw.
#pragma once

#include "row_law_fill.h"
#include "row_law_ranks.h"

namespace spsample {

template <class Index>
struct RowsCall {
    const CsrView<Index>& A;
    const SelectorView<Index>& Q;
    const DrawArguments& draw;
    const RankedRows* ranked = nullptr;  // null: uniform
};

// Rows drawn into what `make_room` makes, by the threads that are worth waking for it. The vertices of Q are checked. In row_law.cpp.
template <class Index>
RowsResult<Index> sampled_rows(const RowsCall<Index>& call, bool positions, const MakeRoom<Index>& make_room);

extern template RowsResult<int32_t> sampled_rows(const RowsCall<int32_t>&, bool, const MakeRoom<int32_t>&);
extern template RowsResult<int64_t> sampled_rows(const RowsCall<int64_t>&, bool, const MakeRoom<int64_t>&);

}  // namespace spsample
