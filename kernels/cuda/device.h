// What all kernels share: the work of a thread, the parameters that hand in A and Q, and atomics on the laws' integers.
//
// Rules of every .cu file here. Each is compiled for one index type and one kind of weights, named by the macros below, so that no
// kernel is a template. A kernel takes only pointers and 64-bit integers (flags too): this is what lets the same file be compiled for
// the host and run thread by thread in the tests. Work is walked with a grid stride: any grid is right. Shared memory is static. Float
// arithmetic is compiled without contraction (--fmad=false) and keeps subnormal numbers.
#pragma once

#include "spsample/config.h"
#include "spsample/philox.h"
#include "spsample/views.h"

#if defined(SPSAMPLE_EMULATED)
#include "emulator.h"
#endif

#ifndef SPSAMPLE_INDEX
#define SPSAMPLE_INDEX int32_t
#endif
#ifndef SPSAMPLE_WEIGHTS
#define SPSAMPLE_WEIGHTS UnitWeights
#endif

namespace spsample {

using Index = SPSAMPLE_INDEX;

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// --- which part of the work is this thread's ----------------------------------------------------------------------------

__device__ inline int64_t thread_index() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x % kWarp); }
__device__ inline int64_t warp_index() { return thread_index() / kWarp; }
__device__ inline int64_t warp_count() { return thread_count() / kWarp; }
__device__ inline unsigned lanes_below() { return (1u << lane_index()) - 1; }

// The i with pointers[i] <= x < pointers[i + 1], for pointers[0] <= x < pointers[count]; empty parts are passed over. O(log count).
template <class Integer>
__device__ inline int64_t part_of(const Integer* pointers, int64_t count, int64_t x) {
    int64_t first = 0;
    while (count > 1) {
        const int64_t half = count / 2;
        if (static_cast<int64_t>(pointers[first + half]) <= x) {
            first += half;
            count -= half;
        } else {
            count = half;
        }
    }
    return first;
}

// --- atomics on 64-bit integers -------------------------------------------------------------------------------------------

__device__ inline uint64_t atomic_add(uint64_t* address, uint64_t value) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value));
}
__device__ inline int64_t atomic_add(int64_t* address, int64_t value) {
    return static_cast<int64_t>(atomic_add(reinterpret_cast<uint64_t*>(address), static_cast<uint64_t>(value)));
}
__device__ inline uint64_t atomic_min(uint64_t* address, uint64_t value) {
    return atomicMin(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value));
}
__device__ inline uint64_t atomic_cas(uint64_t* address, uint64_t expected, uint64_t value) {
    return atomicCAS(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(expected),
                     static_cast<unsigned long long>(value));
}

// A number that other threads may read or write at the same time, without an order to anything else. PTX: volatile accesses are relaxed
// ones of system scope.
template <class Number>
__device__ inline Number load_relaxed(const Number* address) {
    return *static_cast<const volatile Number*>(address);
}
template <class Number>
__device__ inline void store_relaxed(Number* address, Number value) {
    *static_cast<volatile Number*>(address) = value;
}

// --- A and Q as parameters ------------------------------------------------------------------------------------------------

// A's rows. Where a row lies apart from the others (a cached row of a graph in host memory), `places` holds the address of each row's
// first column and `data_places` that of its first weight; both are null where all lie in `indices` and `data`.
struct Rows {
    const int64_t* indptr;
    const Index* indices;
    const Index* ids;
    const uint64_t* places;

    __device__ int64_t begin(int64_t row) const { return indptr[row]; }
    __device__ int64_t degree(int64_t row) const { return indptr[row + 1] - indptr[row]; }
    __device__ int64_t vertex(int64_t row) const { return ids ? static_cast<int64_t>(ids[row]) : row; }
    __device__ const Index* columns(int64_t row) const {
        return places ? reinterpret_cast<const Index*>(places[row]) : indices + indptr[row];
    }
};

#define SPSAMPLE_ROWS_PARAMETERS \
    const int64_t *A_indptr, const Index *A_indices, const Index *A_ids, const uint64_t *A_places
#define SPSAMPLE_ROWS \
    Rows { A_indptr, A_indices, A_ids, A_places }

// Q of k stacked batches: batch i selects rows vertices[batch_ptr[i]] .. vertices[batch_ptr[i + 1] - 1] of A.
struct Selector {
    const int64_t* batch_ptr;
    const Index* vertices;
    const int64_t* batch_ids;
    int64_t num_batches;
    int64_t num_rows;

    __device__ int64_t batch_of(int64_t row) const { return part_of(batch_ptr, num_batches, row); }
};

#define SPSAMPLE_SELECTOR_PARAMETERS \
    const int64_t *Q_batch_ptr, const Index *Q_vertices, const int64_t *Q_batch_ids, int64_t Q_batches, int64_t Q_rows
#define SPSAMPLE_SELECTOR \
    Selector { Q_batch_ptr, Q_vertices, Q_batch_ids, Q_batches, Q_rows }

// The selected row that is drawn from as number `turn`: rows come in any order. order (Q_rows): all of them; null: as they are stacked.
__device__ inline int64_t row_at(const int64_t* order, int64_t turn) { return order ? order[turn] : turn; }

// How to draw (the law's counter and key).
struct DrawArguments {
    PhiloxKey key;
    uint32_t hop;
    int64_t size;
    bool replace;
};

#define SPSAMPLE_DRAW_PARAMETERS int64_t draw_key, int64_t draw_hop, int64_t draw_size, int64_t draw_replace
#define SPSAMPLE_DRAW                                                                                                     \
    DrawArguments {                                                                                                            \
        {static_cast<uint32_t>(draw_key), static_cast<uint32_t>(static_cast<uint64_t>(draw_key) >> 32)},                  \
            static_cast<uint32_t>(draw_hop), draw_size, draw_replace != 0                                                 \
    }

// The weight of entry e of a row of A, as the law's section 2 names it: 1, 1.0 / d, or the stored one (float or double).
template <class Weights>
struct RowWeights;

template <>
struct RowWeights<UnitWeights> {
    const void* data;
    const uint64_t* places;
    __device__ double operator()(const Rows&, int64_t, int64_t) const { return 1.0; }
};

template <>
struct RowWeights<RowNormalizedWeights> {
    const void* data;
    const uint64_t* places;
    __device__ double operator()(const Rows& A, int64_t row, int64_t) const { return 1.0 / static_cast<double>(A.degree(row)); }
};

template <class Real>
struct RowWeights<ArrayWeights<Real>> {
    const void* data;
    const uint64_t* places;
    __device__ const Real* row(const Rows& A, int64_t row) const {
        return places ? reinterpret_cast<const Real*>(places[row]) : static_cast<const Real*>(data) + A.begin(row);
    }
    __device__ Real operator()(const Rows& A, int64_t row, int64_t entry) const { return this->row(A, row)[entry]; }
};

using Weights = RowWeights<SPSAMPLE_WEIGHTS>;

#define SPSAMPLE_WEIGHTS_PARAMETERS const void *A_data, const uint64_t *A_data_places
#define SPSAMPLE_ROW_WEIGHTS \
    Weights { A_data, A_data_places }

}  // namespace spsample
