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

// Gives a block back. A large one is kept for reuse, within limits: blocks in use and kept take at most an eighth more memory
// together than those in use took at their peak, of late (the last 256 to 512 requests for large blocks). Where blocks freed by
// this limit are asked for again, it rises, by up to a quarter of that peak or 8 MiB, whichever is more, and to twice that
// peak at most.
void give_block(Block block) noexcept;

// Bytes kept and not in use.
size_t pool_bytes() noexcept;

// Bytes of large blocks, in use and kept: now, and at most since the mark was last set back.
struct PoolUse {
    size_t now;
    size_t peak;
};
PoolUse pool_use() noexcept;

// Sets the mark of the peak back to what there is now.
void reset_pool_peak() noexcept;

// Frees all of them. Done, too, where the system has no memory left for a new block, before that fails.
void clear_pool() noexcept;

// Around a fork, so that the child's copy of the pool is in order and unlocked.
void lock_pool() noexcept;
void unlock_pool() noexcept;

}  // namespace spsample
