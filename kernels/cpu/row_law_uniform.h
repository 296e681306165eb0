// The row law over stacked rows, uniform, for kernels that do more than draw.
#pragma once

#include <functional>

#include "row_law_fill.h"

namespace spsample {

// Makes `columns` and `positions` of a result whose `entry_ptr` is known, and `batch_begin` where its batches are not stacked.
template <class Index>
using MakeRoom = std::function<void(RowsResult<Index>&)>;

// Rows drawn by the threads that are worth waking for it. The vertices of Q are checked. What `make_room` makes is drawn into, but where
// rows are drawn one by one (many draws a row, or rows of 2^31 entries): the result is stacked then. In row_law.cpp.
template <class Index>
RowsResult<Index> sampled_uniformly(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, bool positions, const MakeRoom<Index>& make_room);

extern template RowsResult<int32_t> sampled_uniformly(
    const CsrView<int32_t>&, const SelectorView<int32_t>&, const DrawArguments&, bool, const MakeRoom<int32_t>&);
extern template RowsResult<int64_t> sampled_uniformly(
    const CsrView<int64_t>&, const SelectorView<int64_t>&, const DrawArguments&, bool, const MakeRoom<int64_t>&);

}  // namespace spsample
