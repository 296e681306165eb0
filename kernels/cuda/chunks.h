// Consecutive items (entries of stacked rows, rows of stacked batches) that warps take 256 at a time, so that long parts and
// short ones cost the same. The parts that a chunk touches are found once, by the whole warp; a lane then searches among these
// alone.
#pragma once

#include "device.h"

namespace spsample {

constexpr int64_t kChunk = 256;  // items of one warp
constexpr int kChunkSteps = static_cast<int>(kChunk / kWarp);

__host__ __device__ inline int64_t chunks_of(int64_t items) { return (items + kChunk - 1) / kChunk; }

// part_of, by all lanes of a warp together: 32 pointers at a time. O(log_32 count) loads one after the other.
__device__ inline int64_t warp_part_of(const int64_t* pointers, int64_t count, int64_t x) {
    int64_t first = 0;
    while (count > 1) {
        const int64_t step = (count + kWarp - 1) / kWarp, mine = lane_index() * step;
        const unsigned below = __ballot_sync(kAllLanes, mine < count && (mine == 0 || pointers[first + mine] <= x));
        const int64_t passed = (31 - __clz(static_cast<int>(below))) * step;
        first += passed;
        count = step < count - passed ? step : count - passed;
    }
    return first;
}

// Parts first .. first + count - 1 of `pointers`.
struct Window {
    const int64_t* pointers;
    int64_t first;
    int64_t count;

    // Which of them holds x.
    __device__ int64_t part_of(int64_t x) const { return first + spsample::part_of(pointers + first, count, x); }
};

// The parts that hold the items first .. last. All lanes of the warp call it together.
__device__ inline Window window_of(const int64_t* pointers, int64_t count, int64_t first, int64_t last) {
    const int64_t part = warp_part_of(pointers, count, first);
    return {pointers, part, warp_part_of(pointers + part, count - part, last) + 1};
}

// Calls body(part, item) for every item pointers[0] .. pointers[count] - 1, one warp for each chunk of them. All threads call it.
template <class Body>
__device__ inline void for_each_item(const int64_t* pointers, int64_t count, Body body) {
    const int64_t end = count > 0 ? pointers[count] : 0;
    for (int64_t first = (count > 0 ? pointers[0] : 0) + warp_index() * kChunk; first < end; first += warp_count() * kChunk) {
        const int64_t last = (first + kChunk < end ? first + kChunk : end) - 1;
        const Window window = window_of(pointers, count, first, last);
        for (int64_t item = first + lane_index(); item <= last; item += kWarp) body(window.part_of(item), item);
    }
}

// Sum over the lanes below this one.
__device__ inline uint32_t sum_below(uint32_t count) {
    uint32_t sum = count;
    for (int step = 1; step < kWarp; step *= 2) {
        const uint32_t below = __shfl_up_sync(kAllLanes, sum, step);
        if (lane_index() >= step) sum += below;
    }
    return sum - count;
}

// k stacked sparse matrices (StackedRows of protocol.py): batch i owns the entries entry_ptr[i] .. entry_ptr[i + 1] - 1 and the
// row pointers indptr[batch_ptr[i] + i] .. indptr[batch_ptr[i + 1] + i], which start at 0.
struct Stacked {
    const int64_t* batch_ptr;
    const int64_t* entry_ptr;
    const int64_t* indptr;
    int64_t num_batches;

    __device__ int64_t batch_of(int64_t entry) const { return part_of(entry_ptr, num_batches, entry); }
    // The stacked row that holds an entry of a batch.
    __device__ int64_t row_of(int64_t batch, int64_t entry) const {
        const int64_t first = batch_ptr[batch];
        return first + part_of(indptr + first + batch, batch_ptr[batch + 1] - first, entry - entry_ptr[batch]);
    }
    __device__ int64_t begin(int64_t batch, int64_t row) const { return entry_ptr[batch] + indptr[row + batch]; }
    __device__ int64_t end(int64_t batch, int64_t row) const { return entry_ptr[batch] + indptr[row + batch + 1]; }
};

}  // namespace spsample
