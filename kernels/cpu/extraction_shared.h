// The src columns of up to 64 batches in one table by vertex: a row that several of them select is read once for all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "bindings.h"
#include "match.h"
#include "parallel.h"

namespace spsample {

// One row of A for the batches of a group that select it.
struct SharedRun {
    uint64_t wanted = 0;  // their bits
    int size = 0;
    int bits[kSharedBatches];

    bool has(int bit) const { return (wanted >> bit & 1) != 0; }

    void add(int bit) {
        wanted |= uint64_t(1) << bit;
        bits[size++] = bit;
    }
};

// Which batches of a group.
struct BatchGroup {
    int64_t begin, end;  // at most kSharedBatches
};

// Columns below `limit`; a row may have others. Never written between `build` and `clear`, so all threads may read. Threads share the
// columns by range. Memory: 12 bytes for each column below the limit, and an Index for each column of a batch.
template <class Index>
class SharedColumns {
public:
    SharedColumns(const int64_t* src_ptr, const Index* src, int64_t limit)
        : src_ptr_(src_ptr), src_(src), limit_(limit), num_ranges_(std::min<int64_t>(thread_limit(), kMostRanges)), batches_(limit + 1), first_(limit) {
        std::fill_n(batches_.data(), limit + 1, 0);
    }

    // Of the columns src[src_ptr[i]] .. src[src_ptr[i + 1] - 1], distinct, of the group's batches i. O(columns).
    void build(BatchGroup group) {
        places_ = Buffer<Index>(src_ptr_[group.end] - src_ptr_[group.begin]);
        std::vector<uint32_t> starts(static_cast<size_t>(num_ranges_) + 1);
        by_range([&](int64_t range) {
            uint32_t count = 0;
            bool distinct = true;
            for_columns(group, range, [&](Index column, int bit, int64_t) {
                distinct &= (batches_[column] >> bit & 1) == 0;
                batches_[column] |= uint64_t(1) << bit;
                ++count;
            });
            require(distinct, "src", "a column is twice in a batch");
            starts[static_cast<size_t>(range) + 1] = count;
        });
        std::partial_sum(starts.begin(), starts.end(), starts.begin());
        by_range([&](int64_t range) { place_columns(group, range, starts[static_cast<size_t>(range)]); });
    }

    // Takes the same columns out again.
    void clear(BatchGroup group) {
        by_range([&](int64_t range) { for_columns(group, range, [&](Index column, int, int64_t) { batches_[column] = 0; }); });
    }

    SharedView<Index> view() const { return {batches_.data(), first_.data(), static_cast<uint64_t>(limit_), places_.data()}; }

private:
    static constexpr int64_t kMostRanges = 16;

    template <class Body>
    void by_range(Body&& body) {
        parallel_chunks(num_ranges_, 1, [&](int64_t range, int64_t) { body(range); });
    }

    // The places of a range's columns, from `next` on.
    void place_columns(BatchGroup group, int64_t range, uint32_t next) {
        for_columns(group, range, [&](Index column, int bit, int64_t place) {
            const uint64_t before = batches_[column] & ((uint64_t(1) << bit) - 1);
            if (before == 0) {
                first_[column] = next;
                next += bits_set(batches_[column]);
            }
            places_[first_[column] + bits_set(before)] = static_cast<Index>(place);
        });
    }

    // Calls body(column, bit of its batch, place) for those of a range, batch by batch.
    template <class Body>
    void for_columns(BatchGroup group, int64_t range, Body&& body) const {
        const int64_t low = range * limit_ / num_ranges_, high = (range + 1) * limit_ / num_ranges_;
        for (int64_t i = group.begin; i < group.end; ++i) {
            for (int64_t j = src_ptr_[i]; j < src_ptr_[i + 1]; ++j) {
                if (low <= src_[j] && src_[j] < high) body(src_[j], static_cast<int>(i - group.begin), j - src_ptr_[i]);
            }
        }
    }

    const int64_t* src_ptr_;
    const Index* src_;
    int64_t limit_, num_ranges_;
    Buffer<uint64_t> batches_;
    Buffer<uint32_t> first_;
    Buffer<Index> places_;
};

}  // namespace spsample
