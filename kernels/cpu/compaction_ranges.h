// Numbering the columns of a batch range by range of vertices: for batches whose bit set would not stay in the cache.
//
// The entries are first brought together by range, each as its offset within the range. Every range is then numbered by itself, with a
// bit set and a table of places that stay in the cache, and the places are written over the offsets. In the end each column fetches its
// place: the entries of a range have kept their order, so a cursor for each range leads there. Nothing is as long as the ids are large.
#pragma once

#include <algorithm>
#include <cstdint>

#include "simd.h"

namespace spsample {

// Ranges of 2^shift vertices.
struct Ranges {
    int shift;
    int64_t count;  // 0: a batch is not worth it
};

constexpr int kShortestRange = 16;  // its table stays in the second-level cache
constexpr int kLongestRange = 19;

// Those of a batch with this number of targets and entries, and ids up to `largest`.
inline Ranges ranges_for(int64_t largest, int64_t elements) {
    constexpr int64_t kMostRanges = 4096, kElementsPerRange = 16, kFewElements = 1024;  // a hash table of few stays in the cache
    const int64_t most = std::min(kMostRanges, elements / kElementsPerRange);
    Ranges ranges{kShortestRange, (largest >> kShortestRange) + 1};
    while (ranges.count > most && ranges.shift < kLongestRange) {
        ++ranges.shift;
        ranges.count = (largest >> ranges.shift) + 1;
    }
    if (ranges.count > most || elements < kFewElements) ranges.count = 0;
    return ranges;
}

// A target by its offset within its range.
struct RangeTarget {
    uint32_t offset;
    uint32_t place;
};

// Working memory. The sets are empty before and after.
struct RangeMemory {
    uint32_t* entry_starts;   // 2 a range, and one more
    uint32_t* target_starts;  // one a range, and one more
    uint32_t* entries;        // one a column
    RangeTarget* targets;
    uint64_t* bits;           // a set of offsets
    uint64_t* words;          // which words of `bits` are not empty; used where entries are few
    uint32_t* places;         // of offsets; 64 more than a range has
};

template <class Index>
struct RangeBatch {
    Ranges ranges;
    const Index* targets;
    int64_t num_targets;
    Index* columns;  // become places in src
    int64_t num_columns;
    Index* vertices;  // where the new ones go; has room for kLanes more
};

struct RangeOutcome {
    int64_t num_new;
    bool distinct;  // whether the targets are
};

// Numbers a batch with less than 2^32 targets and entries, all within the ranges. O(targets + entries + vertices / 4096).
// Implementations with equal results, as in simd.h.
template <class Index>
using NumberByRanges = RangeOutcome (*)(const RangeBatch<Index>&, const RangeMemory&);

// That of the instruction set in use.
template <class Index>
NumberByRanges<Index> number_by_ranges();

RangeOutcome number_by_ranges_avx2(const RangeBatch<int32_t>& batch, const RangeMemory& memory);
RangeOutcome number_by_ranges_avx2(const RangeBatch<int64_t>& batch, const RangeMemory& memory);
RangeOutcome number_by_ranges_avx512(const RangeBatch<int32_t>& batch, const RangeMemory& memory);
RangeOutcome number_by_ranges_avx512(const RangeBatch<int64_t>& batch, const RangeMemory& memory);

}  // namespace spsample
