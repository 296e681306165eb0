// Memory of one thread that numbers batches by ranges (compaction_ranges.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "bindings.h"
#include "compaction_ranges.h"

namespace spsample {

// Owns working memory in one block, for a huge page where it is large: 4 bytes for each entry of a batch and 8 for each target; 4 for each
// vertex of a range; little else.
class RangeScratch {
public:
    RangeMemory memory(const Ranges& ranges, int64_t num_targets, int64_t num_columns) {
        const int64_t length = int64_t(1) << ranges.shift;
        Taken taken;
        const int64_t bits = taken.take<uint64_t>(length / 64), words = taken.take<uint64_t>(length / 4096);
        const int64_t entry_starts = taken.take<uint32_t>(2 * ranges.count + 1), target_starts = taken.take<uint32_t>(ranges.count + 1);
        const int64_t places = taken.take<uint32_t>(length + 64);
        const int64_t entries = taken.take<uint32_t>(num_columns), targets = taken.take<RangeTarget>(num_targets);
        if (!block_ || block_->size() < taken.bytes + kLine) renew(taken.bytes);
        if (length != length_) std::fill_n(at<unsigned char>(0), entry_starts, static_cast<unsigned char>(0));
        length_ = length;
        return {at<uint32_t>(entry_starts), at<uint32_t>(target_starts), at<uint32_t>(entries), at<RangeTarget>(targets),
                at<uint64_t>(bits), at<uint64_t>(words), at<uint32_t>(places)};
    }

private:
    static constexpr int64_t kLine = 64, kLarge = 1 << 20, kHugePage = 2 << 20;

    struct Taken {
        int64_t bytes = 0;

        // Where `count` elements begin.
        template <class T>
        int64_t take(int64_t count) {
            const int64_t begin = bytes;
            bytes += (count * static_cast<int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine;
            return begin;
        }
    };

    // A new block, whose sets are still to be emptied.
    void renew(int64_t bytes) {
        const int64_t size = bytes + bytes / 4 + kLine;
        block_.reset();
        block_.emplace(size < kLarge ? size : std::max(size, kHugePage));
        length_ = 0;
    }

    template <class T>
    T* at(int64_t byte) {
        const uintptr_t memory = reinterpret_cast<uintptr_t>(block_->data());
        return reinterpret_cast<T*>((memory + kLine - 1) / kLine * kLine + static_cast<uintptr_t>(byte));
    }

    std::optional<Buffer<unsigned char>> block_;
    int64_t length_ = 0;  // of the ranges that the sets at the beginning of the block are empty for
};

}  // namespace spsample
