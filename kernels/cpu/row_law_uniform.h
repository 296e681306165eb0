// The row law over stacked rows, uniform, for kernels that do more than draw.
#pragma once

#include "row_law_fill.h"

namespace spsample {

// Rows drawn into what `make_room` makes, by the threads that are worth waking for it. The vertices of Q are checked. In row_law.cpp.
template <class Index>
RowsResult<Index> sampled_uniformly(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, bool positions, const MakeRoom<Index>& make_room);

extern template RowsResult<int32_t> sampled_uniformly(
    const CsrView<int32_t>&, const SelectorView<int32_t>&, const DrawArguments&, bool, const MakeRoom<int32_t>&);
extern template RowsResult<int64_t> sampled_uniformly(
    const CsrView<int64_t>&, const SelectorView<int64_t>&, const DrawArguments&, bool, const MakeRoom<int64_t>&);

}  // namespace spsample
