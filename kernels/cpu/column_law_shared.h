// The one row that all batches draw from, given as inclusive prefix sums, for kernels that do more than draw from it.
#pragma once

#include "bindings.h"
#include "spsample/its.h"

namespace spsample {

inline PrefixRow prefix_row(const In<uint64_t>& cumulative) { return {cumulative.data(), static_cast<int64_t>(cumulative.size())}; }

// N of columns of the row: differences of its prefix sums. O(columns).
template <class Index>
Buffer<uint64_t> numerators_at(const PrefixRow& row, const Index* columns, int64_t count) {
    constexpr int64_t kChunk = 1 << 14;
    require(in_range(columns, count, row.count), "columns", "a column is not one of the row's");
    Buffer<uint64_t> numerators(count);
    parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) numerators[i] = row.numerator(columns[i]);
    });
    return numerators;
}

}  // namespace spsample
