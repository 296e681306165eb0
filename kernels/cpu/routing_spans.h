// The stacked rows of k batches in spans for threads: of one batch each, and not too many rows.
#pragma once

#include <algorithm>
#include <vector>

#include "parallel.h"

namespace spsample {

constexpr int64_t kSpanRows = 1 << 14;

struct RowSpan {
    int64_t batch;
    int64_t begin, end;  // stacked rows
};

// Spans of at most `most` rows, in order; batches without rows have none. O(k + spans).
inline std::vector<RowSpan> row_spans(const int64_t* batch_ptr, int64_t num_batches, int64_t most = kSpanRows) {
    std::vector<RowSpan> spans;
    for (int64_t i = 0; i < num_batches; ++i) {
        for (int64_t begin = batch_ptr[i]; begin < batch_ptr[i + 1]; begin += most) {
            spans.push_back({i, begin, std::min(batch_ptr[i + 1], begin + most)});
        }
    }
    return spans;
}

// Calls body(number) for all spans. Short ones are dealt out several at a time.
template <class Body>
void parallel_spans(const std::vector<RowSpan>& spans, Body&& body) {
    if (spans.empty()) return;
    const int64_t count = static_cast<int64_t>(spans.size()), rows = spans.back().end - spans.front().begin;
    parallel_chunks(count, std::max<int64_t>(1, kSpanRows / (2 * (rows / count + 1))), [&](int64_t begin, int64_t end) {
        for (int64_t number = begin; number < end; ++number) body(number);
    });
}

}  // namespace spsample
