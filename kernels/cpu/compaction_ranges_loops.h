// Loops over the ranges of a batch that compaction_ranges*.cpp compile once for each instruction set. Portable code, to be inlined.
#pragma once

#include <type_traits>
#include <utility>

#include "compaction_ranges.h"
#include "simd_ranks.h"

namespace spsample {

constexpr int64_t kGroup = 4096;          // vertices of 64 words of a set
constexpr int64_t kEntriesPerGroup = 12;  // below, on average, it pays to keep which words are not empty

template <class Index>
SPSAMPLE_INLINE uint32_t range_of(Index vertex, int shift) {
    return static_cast<uint32_t>(static_cast<std::make_unsigned_t<Index>>(vertex) >> shift);
}

// Makes counts of what comes before. Returns the sum.
SPSAMPLE_INLINE void make_starts(uint32_t* counts, int64_t size) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < size; ++i) {
        const uint32_t count = counts[i];
        counts[i] = sum;
        sum += count;
    }
}

// Brings the entries together by range. The first half of the columns has cursors of its own, beside those of the second half: equal
// columns that follow each other wait for each other's cursor. starts[2 r] and starts[2 r + 1]: where those of range r begin.
template <class Index>
SPSAMPLE_INLINE void spread_entries(const RangeBatch<Index>& batch, const RangeMemory& memory) {
    const int shift = batch.ranges.shift;
    const uint32_t low = (uint32_t(1) << shift) - 1;
    const int64_t half = batch.num_columns / 2;
    const Index *first = batch.columns, *second = batch.columns + half;
    uint32_t* const starts = memory.entry_starts;
    uint32_t* const cursors = starts + 1;  // one further on: at the end, where each begins is where its predecessor has ended
    for (int64_t i = 0; i < 2 * batch.ranges.count + 1; ++i) starts[i] = 0;
    for (int64_t i = 0; i < half; ++i) {
        ++cursors[2 * range_of(first[i], shift)];
        ++cursors[2 * range_of(second[i], shift) + 1];
    }
    if (batch.num_columns % 2 != 0) ++cursors[2 * range_of(second[half], shift) + 1];
    make_starts(cursors, 2 * batch.ranges.count);
    for (int64_t i = 0; i < half; ++i) {
        memory.entries[cursors[2 * range_of(first[i], shift)]++] = static_cast<uint32_t>(first[i]) & low;
        memory.entries[cursors[2 * range_of(second[i], shift) + 1]++] = static_cast<uint32_t>(second[i]) & low;
    }
    if (batch.num_columns % 2 != 0) {
        memory.entries[cursors[2 * range_of(second[half], shift) + 1]++] = static_cast<uint32_t>(second[half]) & low;
    }
}

// Every column becomes the number that has taken the place of its offset.
template <class Index>
SPSAMPLE_INLINE void fetch_places(const RangeBatch<Index>& batch, const RangeMemory& memory) {
    const int shift = batch.ranges.shift;
    const int64_t half = batch.num_columns / 2;
    Index *first = batch.columns, *second = batch.columns + half;
    uint32_t* const cursors = memory.entry_starts;
    for (int64_t i = 0; i < half; ++i) {
        first[i] = static_cast<Index>(memory.entries[cursors[2 * range_of(first[i], shift)]++]);
        second[i] = static_cast<Index>(memory.entries[cursors[2 * range_of(second[i], shift) + 1]++]);
    }
    if (batch.num_columns % 2 != 0) {
        second[half] = static_cast<Index>(memory.entries[cursors[2 * range_of(second[half], shift) + 1]++]);
    }
}

template <class Index>
SPSAMPLE_INLINE void spread_targets(const RangeBatch<Index>& batch, const RangeMemory& memory) {
    const int shift = batch.ranges.shift;
    const uint32_t low = (uint32_t(1) << shift) - 1;
    uint32_t* const cursors = memory.target_starts + 1;
    for (int64_t i = 0; i < batch.ranges.count + 1; ++i) memory.target_starts[i] = 0;
    for (int64_t i = 0; i < batch.num_targets; ++i) ++cursors[range_of(batch.targets[i], shift)];
    make_starts(cursors, batch.ranges.count);
    for (int64_t i = 0; i < batch.num_targets; ++i) {
        const uint32_t offset = static_cast<uint32_t>(batch.targets[i]) & low;
        memory.targets[cursors[range_of(batch.targets[i], shift)]++] = {offset, static_cast<uint32_t>(i)};
    }
}

// One range: its entries and targets among those of the batch.
struct RangeSpan {
    uint32_t *begin, *end;
    const RangeTarget *targets_begin, *targets_end;
};

SPSAMPLE_INLINE RangeSpan span_of(const RangeMemory& memory, int64_t r) {
    return {memory.entries + memory.entry_starts[2 * r], memory.entries + memory.entry_starts[2 * r + 2],
            memory.targets + memory.target_starts[r], memory.targets + memory.target_starts[r + 1]};
}

// The bits of the range's entries that are not targets; with kWords, too, those of the words that entries lie in.
template <bool kWords>
SPSAMPLE_INLINE void mark_range(const RangeSpan& span, const RangeMemory& memory) {
    for (const uint32_t* offset = span.begin; offset < span.end; ++offset) {
        memory.bits[*offset >> 6] |= uint64_t(1) << (*offset & 63);
        if (kWords) memory.words[*offset >> 12] |= uint64_t(1) << (*offset >> 6 & 63);
    }
    for (const RangeTarget* target = span.targets_begin; target < span.targets_end; ++target) {
        memory.bits[target->offset >> 6] &= ~(uint64_t(1) << (target->offset & 63));
    }
}

// 64 words of the set, and where their vertices and places begin.
struct Group {
    uint64_t* bits;
    uint64_t first;
    uint32_t* places;
};

// The new vertices so far.
template <class Index>
struct NewSoFar {
    Index* end;
    uint32_t place;  // of the next one
};

// The targets' places join those of the new vertices, and places are written over offsets. Whether the targets are distinct: of equal ones,
// the last one's place stays.
SPSAMPLE_INLINE bool place_range(const RangeSpan& span, uint32_t* places) {
    for (const RangeTarget* target = span.targets_begin; target < span.targets_end; ++target) places[target->offset] = target->place;
    uint32_t other = 0;
    for (const RangeTarget* target = span.targets_begin; target < span.targets_end; ++target) {
        other |= places[target->offset] ^ target->place;
    }
    for (uint32_t* entry = span.begin; entry < span.end; ++entry) *entry = places[*entry];
    return other == 0;
}

template <class Index>
SPSAMPLE_INLINE bool has_few_entries(const RangeBatch<Index>& batch) {
    return batch.num_columns < ((batch.ranges.count << batch.ranges.shift) / kGroup) * kEntriesPerGroup;
}

}  // namespace spsample
