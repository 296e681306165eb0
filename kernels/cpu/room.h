// Room for results whose sizes show one after the other: pieces of few large blocks, which the pool keeps as they are from call to call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "bindings.h"

namespace spsample {

// A piece of a block, which lives as long as one of its pieces does.
template <class T>
struct RoomPiece {
    std::shared_ptr<Buffer<T>> block;
    T* items = nullptr;
};

// Gives one thread room.
template <class T>
class Room {
public:
    // `num_pieces`: how many the thread may get; the first one's size says how much that may be.
    explicit Room(int64_t num_pieces) : num_pieces_(num_pieces) {}

    RoomPiece<T> take(int64_t size) {
        reserve(size);
        return keep(size);
    }

    // Room for up to `most` items: the caller writes them and tells `keep` how many stay.
    T* reserve(int64_t most) {
        if (!block_ || used_ + most > block_->size()) {
            block_ = std::make_shared<Buffer<T>>(std::max(most, std::min(kMostItems, most * num_pieces_)));
            used_ = 0;
        }
        return block_->data() + used_;
    }

    RoomPiece<T> keep(int64_t size) {
        used_ += size;
        return {block_, block_->data() + used_ - size};
    }

private:
    static constexpr int64_t kMostItems = 1 << 19;
    std::shared_ptr<Buffer<T>> block_;
    int64_t used_ = 0;
    int64_t num_pieces_;
};

}  // namespace spsample
