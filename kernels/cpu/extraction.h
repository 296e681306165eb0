// Extraction, for kernels that do more than extract.
#pragma once

#include "bindings.h"
#include "stacking.h"

namespace spsample {

// The rows of k batches restricted to the src columns of their batches.
template <class Index>
struct Extraction {
    StackedPointers pointers;
    Buffer<Index> columns;      // indices into the batch's src
    Buffer<int64_t> positions;  // empty where not asked for
};

// The entries of the selected rows whose columns are in their batch's src. Each step decides by its own work whether to wake threads.
// O(src + sum over rows of min(degree, columns log degree)). Memory beside the result: its entries once more, and the
// column sets, or a table of columns. The vertices of Q and src are checked. In extraction.cpp.
template <class Index>
Extraction<Index> extract_rows(
    const CsrView<Index>& A, const SelectorView<Index>& Q, const int64_t* src_ptr, const Index* src, bool positions);

extern template Extraction<int32_t> extract_rows(
    const CsrView<int32_t>&, const SelectorView<int32_t>&, const int64_t*, const int32_t*, bool);
extern template Extraction<int64_t> extract_rows(
    const CsrView<int64_t>&, const SelectorView<int64_t>&, const int64_t*, const int64_t*, bool);

}  // namespace spsample
