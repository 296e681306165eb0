// Numbering the columns of batches: filling, ranking and reading sets of columns (compaction_sets.h; docs/law.md, section 4).
#include "chunks.h"
#include "compaction_sets.h"

using namespace spsample;

// Marks the vertices of each batch as known; pointers (batches + 1) say where a batch's begin. One warp a chunk of them.
extern "C" __global__ void mark_known(SPSAMPLE_SETS_PARAMETERS, const int64_t* pointers, int64_t batches, const Index* vertices) {
    const ColumnSets sets = SPSAMPLE_SETS;
    for_each_item(pointers, batches, [&](int64_t batch, int64_t i) { sets.mark_known(batch, vertices[i]); });
}

// Marks the columns of each batch as found. One warp a chunk of them.
extern "C" __global__ void mark_found(SPSAMPLE_SETS_PARAMETERS, const int64_t* pointers, int64_t batches, const Index* columns) {
    const ColumnSets sets = SPSAMPLE_SETS;
    for_each_item(pointers, batches, [&](int64_t batch, int64_t i) { sets.mark_found(batch, columns[i]); });
}

// counts (2 * chunks): known columns of each chunk of 32 slots, then new ones of each. One warp a chunk.
extern "C" __global__ void count_chunks(SPSAMPLE_SETS_PARAMETERS, int64_t chunks, int64_t* counts) {
    const ColumnSets sets = SPSAMPLE_SETS;
    for (int64_t chunk = warp_index(); chunk < chunks; chunk += warp_count()) {
        const ColumnSlot slot = sets.table[chunk * kSlotsPerChunk + lane_index()];
        const unsigned known = __reduce_add_sync(kAllLanes, static_cast<unsigned>(__popc(slot.known)));
        const unsigned found = __reduce_add_sync(kAllLanes, static_cast<unsigned>(__popc(slot.found & ~slot.known)));
        if (lane_index() == 0) {
            counts[chunk] = known;
            counts[chunks + chunk] = found;
        }
    }
}

// The inclusive sums of count_chunks' counts, from the first known one to the last new one.
struct ChunkEnds {
    const int64_t* ends;
    int64_t chunks;

    // Known and new columns of the chunks first .. last - 1.
    __device__ int64_t known(int64_t first, int64_t last) const {
        return (last > 0 ? ends[last - 1] : 0) - (first > 0 ? ends[first - 1] : 0);
    }
    __device__ int64_t found(int64_t first, int64_t last) const { return ends[chunks + last - 1] - ends[chunks + first - 1]; }
};

// The ranks of every slot; src_ptr (batches + 1): known and new columns of the batches before. One warp a chunk, of one or more.
extern "C" __global__ void rank_slots(SPSAMPLE_SETS_PARAMETERS, int64_t chunks, const int64_t* chunk_ends, int64_t* src_ptr) {
    const ColumnSets sets = SPSAMPLE_SETS;
    const ChunkEnds ends = {chunk_ends, chunks};
    const int64_t chunks_per_batch = sets.slots / kSlotsPerChunk;
    for (int64_t chunk = warp_index(); chunk < chunks; chunk += warp_count()) {
        const int64_t batch = chunk / chunks_per_batch, first = batch * chunks_per_batch;  // of the batch
        ColumnSlot* slot = sets.table + chunk * kSlotsPerChunk + lane_index();
        const uint32_t known = sum_below(__popc(slot->known));
        const uint32_t found = sum_below(__popc(slot->found & ~slot->known));
        slot->known_rank = static_cast<uint32_t>(ends.known(first, chunk)) + known;
        slot->new_rank = static_cast<uint32_t>(ends.found(first, chunk)) + found;
        if (lane_index() > 0) continue;
        if (chunk == first) src_ptr[batch] = ends.known(0, chunk) + ends.found(0, chunk);
        if (chunk + 1 == chunks) src_ptr[batch + 1] = ends.known(0, chunks) + ends.found(0, chunks);
    }
}

// Writes the place of each known vertex under its rank, and where src is not null the vertex itself into its batch's part of src.
// pointers: of the known vertices, the sets' known_ptr plus a constant; src_ptr (batches + 1).
extern "C" __global__ void place_known(SPSAMPLE_SETS_PARAMETERS, const int64_t* pointers, int64_t batches, const Index* vertices,
                                       uint32_t* places, const int64_t* src_ptr, Index* src) {
    const ColumnSets sets = SPSAMPLE_SETS;
    for_each_item(pointers, batches, [&](int64_t batch, int64_t i) {
        const int64_t place = i - pointers[batch], column = vertices[i];
        const int64_t rank = ColumnSets::known_rank(sets.load(batch, column), column);
        places[sets.known_ptr[batch] + rank] = static_cast<uint32_t>(place);
        if (src) src[src_ptr[batch] + place] = static_cast<Index>(column);
    });
}

// Writes the new columns of each batch behind its known ones, ascending. One warp a chunk.
extern "C" __global__ void place_new(SPSAMPLE_SETS_PARAMETERS, int64_t chunks, const int64_t* src_ptr, Index* src) {
    const ColumnSets sets = SPSAMPLE_SETS;
    const int64_t chunks_per_batch = sets.slots / kSlotsPerChunk;
    for (int64_t chunk = warp_index(); chunk < chunks; chunk += warp_count()) {
        const int64_t batch = chunk / chunks_per_batch;
        const int64_t number = chunk * kSlotsPerChunk + lane_index();
        const ColumnSlot slot = sets.table[number];
        const int64_t first = (number - batch * sets.slots) * 32;
        Index* out = src + src_ptr[batch] + sets.known_ptr[batch + 1] - sets.known_ptr[batch] + slot.new_rank;
        for (uint32_t rest = slot.found & ~slot.known; rest != 0; rest &= rest - 1) *out++ = static_cast<Index>(first + __ffs(rest) - 1);
    }
}

// Each column becomes its place among its batch's vertices.
extern "C" __global__ void number_columns(SPSAMPLE_SETS_PARAMETERS, const int64_t* pointers, int64_t batches, Index* columns) {
    const ColumnSets sets = SPSAMPLE_SETS;
    for_each_item(pointers, batches, [&](int64_t batch, int64_t i) { columns[i] = static_cast<Index>(sets.place(batch, columns[i])); });
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
