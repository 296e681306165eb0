// A warp or a block as a team of threads that work on one row: what such kernels write once for both.
#pragma once

#include "device.h"

namespace spsample {

struct Sum {
    __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};
struct Largest {
    __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};
struct Smallest {
    __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a < b ? a : b; }
};

// Sum of this lane's value and those of the lanes below. All lanes of the warp call it together, as everything here.
__device__ inline uint64_t inclusive_in_warp(uint64_t value) {
    for (int step = 1; step < kWarp; step *= 2) {
        const uint64_t below = __shfl_up_sync(kAllLanes, value, step);
        if (lane_index() >= step) value += below;
    }
    return value;
}

template <class Join>
__device__ inline uint64_t reduce_in_warp(uint64_t value, int width, const Join& join) {
    for (int step = width / 2; step > 0; step /= 2) {
        const uint64_t other = __shfl_xor_sync(kAllLanes, value, step);
        value = join(value, other);
    }
    return value;
}

// Numbers entries of a row that a team of a given number of warps works on: rows for one warp are short.
template <int Warps>
struct EntryNumber {
    using type = int64_t;
};
template <>
struct EntryNumber<1> {
    using type = int32_t;
};

// One warp, or a block of Warps of them (a power of two, at most 32).
template <int Warps>
struct Team {
    using Entry = typename EntryNumber<Warps>::type;
    static constexpr int kWarps = Warps;
    static constexpr int kThreads = Warps * kWarp;
    uint64_t* exchange;  // Warps elements of shared memory; not used by one warp

    __device__ int warp() const { return Warps == 1 ? 0 : static_cast<int>(threadIdx.x / kWarp); }
    __device__ int thread() const { return warp() * kWarp + lane_index(); }

    __device__ void sync() const {
        if (Warps == 1) {
            __syncwarp();
        } else {
            __syncthreads();
        }
    }

    // The values of all threads, joined; every thread gets it.
    template <class Join>
    __device__ uint64_t reduce(uint64_t value, const Join& join) const {
        value = reduce_in_warp(value, kWarp, join);
        if (Warps == 1) return value;
        if (lane_index() == 0) exchange[warp()] = value;
        sync();
        value = exchange[lane_index() % Warps];
        sync();
        return reduce_in_warp(value, Warps, join);
    }

    // Sum of the values of the threads before this one; *total: that of all threads.
    __device__ uint64_t before(uint64_t value, uint64_t* total) const {
        const uint64_t inclusive = inclusive_in_warp(value);
        if (Warps == 1) {
            *total = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
            return inclusive - value;
        }
        if (lane_index() == kWarp - 1) exchange[warp()] = inclusive;
        sync();
        const uint64_t ends = inclusive_in_warp(lane_index() < Warps ? exchange[lane_index() % Warps] : 0);
        sync();
        *total = __shfl_sync(kAllLanes, ends, Warps - 1);
        const uint64_t others = __shfl_sync(kAllLanes, ends, warp() > 0 ? warp() - 1 : 0);
        return inclusive - value + (warp() > 0 ? others : 0);
    }

    // The first warp's value, the same in all of its lanes, for every thread.
    __device__ int64_t from_first_warp(int64_t value) const {
        if (Warps == 1) return value;
        if (thread() == 0) exchange[0] = static_cast<uint64_t>(value);
        sync();
        value = static_cast<int64_t>(exchange[0]);
        sync();
        return value;
    }
};

}  // namespace spsample
