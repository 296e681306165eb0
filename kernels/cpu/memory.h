// Memory of the arrays that kernels return. Fresh pages cost more than all else a sampler does (docs/benchmarks.md), so large
// blocks are backed by huge pages and kept for the next call when the user lets go of their arrays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spsample {

// A piece of memory with the size it was taken with.
struct Block {
    void* memory;
    size_t bytes;
};

// At least `bytes` bytes, uninitialised, aligned for any element type. Throws std::bad_alloc. Thread-safe.
Block take_block(size_t bytes);

// Gives a block back: kept for reuse where it is large. What was kept longest is freed, so that all that is kept and in use stays
// within 9/8 of the most that was ever in use at once.
void give_block(Block block) noexcept;

// Bytes kept and not in use.
size_t pool_bytes() noexcept;

// Frees all of them.
void clear_pool() noexcept;

}  // namespace spsample
