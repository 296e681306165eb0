// Pointers of stacked rows, from the rows' ends.
#include "device.h"

using namespace spsample;

// ends (rows + 1): 0 and the inclusive sums of the rows' lengths. indptr (rows + batches): of each batch, from 0. entry_ptr
// (batches + 1): where each batch's entries begin. O(rows).
extern "C" __global__ void stack_pointers(
    const int64_t* batch_ptr, int64_t batches, int64_t rows, const int64_t* ends, int64_t* indptr, int64_t* entry_ptr) {
    for (int64_t j = thread_index(); j < rows + batches; j += thread_count()) {
        // Batch i owns pointers batch_ptr[i] + i .. batch_ptr[i + 1] + i.
        int64_t first = 0, count = batches;
        while (count > 1) {
            const int64_t half = count / 2;
            if (batch_ptr[first + half] + first + half <= j) {
                first += half;
                count -= half;
            } else {
                count = half;
            }
        }
        indptr[j] = ends[j - first] - ends[batch_ptr[first]];
    }
    for (int64_t i = thread_index(); i <= batches; i += thread_count()) entry_ptr[i] = ends[batch_ptr[i]];
}

// Raises *largest to the largest of `count` values. One atomic operation a warp.
extern "C" __global__ void largest(const Index* values, int64_t count, int64_t* largest) {
    int64_t mine = 0;
    for (int64_t i = thread_index(); i < count; i += thread_count()) mine = values[i] > mine ? static_cast<int64_t>(values[i]) : mine;
    for (int step = kWarp / 2; step > 0; step /= 2) {
        const int64_t other = __shfl_xor_sync(kAllLanes, mine, step);
        mine = other > mine ? other : mine;
    }
    if (lane_index() == 0) atomicMax(reinterpret_cast<unsigned long long*>(largest), static_cast<unsigned long long>(mine));
}
