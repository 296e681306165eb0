// Arrays of several rows, batches or hops as one: pointers of stacked rows, and runs of items copied to other places.
#include "chunks.h"

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

// Copies one item of 1, 2, 4 or 8 bytes.
__device__ inline void copy_item(void* to, int64_t place, const void* from, int64_t number, int64_t bytes) {
    if (bytes == 4) {
        static_cast<uint32_t*>(to)[place] = static_cast<const uint32_t*>(from)[number];
    } else if (bytes == 8) {
        static_cast<uint64_t*>(to)[place] = static_cast<const uint64_t*>(from)[number];
    } else if (bytes == 2) {
        static_cast<uint16_t*>(to)[place] = static_cast<const uint16_t*>(from)[number];
    } else {
        static_cast<uint8_t*>(to)[place] = static_cast<const uint8_t*>(from)[number];
    }
}

// Run r, items begins[r] .. of `from`, becomes items ends[r] .. ends[r + 1] - 1 of `to`. ends (runs + 1) from 0. One warp for 256
// items.
extern "C" __global__ void copy_runs(const int64_t* ends, const int64_t* begins, int64_t runs, int64_t total, const void* from,
                                     int64_t item_bytes, void* to) {
    for (int64_t chunk = warp_index(); chunk < chunks_of(total); chunk += warp_count()) {
        const int64_t begin = chunk * kChunk, end = begin + kChunk < total ? begin + kChunk : total;
        const Window window = window_of(ends, runs, begin, end - 1);
        for (int64_t x = begin + lane_index(); x < end; x += kWarp) {
            const int64_t run = window.part_of(x);
            copy_item(to, x, from, begins[run] + x - ends[run], item_bytes);
        }
    }
}

// Item x of a batch's parts, hop after hop: which hop's it is, and its number among the hop's items of this batch.
// pointers (hops, batches + 1): where each batch's items of a hop begin.
struct HopItem {
    int64_t hop;
    int64_t number;
};
__device__ inline HopItem hop_item(const int64_t* pointers, int64_t batches, int64_t batch, int64_t x) {
    int64_t hop = 0;
    while (true) {
        const int64_t* of_batch = pointers + hop * (batches + 1) + batch;
        const int64_t count = of_batch[1] - of_batch[0];
        if (x < count) return {hop, x};
        x -= count;
        ++hop;
    }
}

// Each batch's parts side by side. parts (hops): addresses; ends (batches + 1): where each batch's items begin in `to`. One
// thread an item. O(items (log batches + hops)).
extern "C" __global__ void interleave(const uint64_t* parts, const int64_t* pointers, const int64_t* ends, int64_t batches,
                                      int64_t item_bytes, void* to) {
    for (int64_t x = thread_index(); x < ends[batches]; x += thread_count()) {
        const int64_t batch = part_of(ends, batches, x);
        const HopItem item = hop_item(pointers, batches, batch, x - ends[batch]);
        const int64_t first = pointers[item.hop * (batches + 1) + batch];
        copy_item(to, x, reinterpret_cast<const void*>(parts[item.hop]), first + item.number, item_bytes);
    }
}

// Row pointers over the rows of all hops, from 0 in every batch. parts (hops): addresses of each hop's row pointers (its rows +
// batches); pointers (hops, batches + 1): its rows; ends (batches + 1): where each batch's pointers begin in `to`. One thread a
// pointer.
extern "C" __global__ void interleave_pointers(
    const uint64_t* parts, const int64_t* pointers, const int64_t* ends, int64_t batches, int64_t* to) {
    for (int64_t x = thread_index(); x < ends[batches]; x += thread_count()) {
        const int64_t batch = part_of(ends, batches, x);
        int64_t pointer = 0;
        if (x > ends[batch]) {
            const HopItem row = hop_item(pointers, batches, batch, x - ends[batch] - 1);
            for (int64_t hop = 0; hop <= row.hop; ++hop) {
                const int64_t* of_batch = pointers + hop * (batches + 1) + batch;
                const int64_t last = hop < row.hop ? of_batch[1] : of_batch[0] + row.number + 1;
                pointer += reinterpret_cast<const int64_t*>(parts[hop])[last + batch];
            }
        }
        to[x] = pointer;
    }
}

// edges (2, entries): column and row of each entry of a CSR matrix. indptr (rows + 1) from 0. One warp for 256 entries.
extern "C" __global__ void edge_index(
    const int64_t* indptr, int64_t rows, const Index* indices, int64_t entries, int64_t* edges) {
    for (int64_t chunk = warp_index(); chunk < chunks_of(entries); chunk += warp_count()) {
        const int64_t begin = chunk * kChunk, end = begin + kChunk < entries ? begin + kChunk : entries;
        const Window window = window_of(indptr, rows, begin, end - 1);
        for (int64_t x = begin + lane_index(); x < end; x += kWarp) {
            edges[x] = indices[x];
            edges[entries + x] = window.part_of(x);
        }
    }
}
