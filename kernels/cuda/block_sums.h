// Sums and sorting by the threads of a block. All threads of a block call these functions together, in blocks of whole warps.
#pragma once

#include "device.h"

namespace spsample {

constexpr int kMostWarps = 32;  // of a block

// Sum of the values of the threads before this one; *total: that of all threads. Sums wrap. Three barriers.
__device__ inline uint64_t block_before(uint64_t value, uint64_t* total) {
    __shared__ uint64_t sums[kMostWarps];
    uint64_t inclusive = value;
    for (int step = 1; step < kWarp; step *= 2) {
        const uint64_t below = __shfl_up_sync(kAllLanes, inclusive, step);
        if (lane_index() >= step) inclusive += below;
    }
    const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
    if (lane_index() == kWarp - 1) sums[warp] = inclusive;
    __syncthreads();
    uint64_t before = inclusive - value, all = 0;
    for (int other = 0; other < warps; ++other) {
        if (other < warp) before += sums[other];
        all += sums[other];
    }
    __syncthreads();
    *total = all;
    return before;
}

// How many of the threads before this one have the mark; *total: how many of all. Two barriers.
__device__ inline int64_t block_rank(bool marked, int64_t* total) {
    __shared__ int counts[kMostWarps];
    const unsigned mask = __ballot_sync(kAllLanes, marked);
    const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
    if (lane_index() == 0) counts[warp] = __popc(mask);
    __syncthreads();
    int before = __popc(mask & lanes_below()), all = 0;
    for (int other = 0; other < warps; ++other) {
        if (other < warp) before += counts[other];
        all += counts[other];
    }
    __syncthreads();
    *total = all;
    return before;
}

// Sorts ascending, in place; what the block wrote before may be among the values. Bitonic sort of which every exchange is
// ascending: places beyond `count` would hold the largest values and keep them. O(count log^2 count) exchanges, a barrier for
// each of the O(log^2 count) passes. Source: Batcher, Sorting networks and their applications, AFIPS 1968.
__device__ inline void block_sort(int64_t* values, int64_t count) {
    int length_bits = 0;
    do {
        ++length_bits;  // sorts runs of 2^length_bits values: the first pass mirrors, later ones exchange at a distance
        for (int bits = length_bits - 1; bits >= 0; --bits) {
            const bool mirrors = bits == length_bits - 1;
            const int64_t half = int64_t(1) << bits, mask = half - 1;
            __syncthreads();
            for (int64_t pair = threadIdx.x;; pair += blockDim.x) {
                const int64_t low = (pair >> bits << (bits + 1)) + (pair & mask);
                if (low >= count) break;
                const int64_t high = mirrors ? (low | mask) + half - (pair & mask) : low + half;
                if (high < count && values[high] < values[low]) {
                    const int64_t larger = values[low];
                    values[low] = values[high];
                    values[high] = larger;
                }
            }
        }
    } while (int64_t(1) << length_bits < count);
    __syncthreads();
}

}  // namespace spsample
