// EXTRACT of layer-wise samples: the entries of selected rows whose columns are in their batch's src (docs/law.md, section 4).
//
// The entries of all selected rows, one after the other, are the frontier's entries 0 .. total - 1. One pass over them marks
// those that are kept, one bit each; sums over the bits say where each kept entry and each row begins in the result; a second
// pass writes the kept ones, reading the bits and their entries only. Scratch: 1 bit for each entry of the frontier, and 16 bytes
// for each 256.
#include "chunks.h"

using namespace spsample;

// The src columns of each batch and their places, as hash tables with open addressing: four slots for each column, so that a
// column that is absent is known to be after 1.2 looks on average. The bits of a result do not depend on the order of insertion.
// keys (4 src): -1 where empty; places (4 src): all ones where empty; src_ptr (batches + 1).
struct SourceTable {
    Index* keys;
    uint32_t* places;
    int64_t capacity;

    __device__ int64_t home(Index column) const {
        const uint64_t mixed = static_cast<uint64_t>(column) * uint64_t(0x9E3779B97F4A7C15);
        return static_cast<int64_t>(multiply_high(mixed, static_cast<uint64_t>(capacity)));
    }
    __device__ int64_t after(int64_t slot) const { return slot + 1 < capacity ? slot + 1 : 0; }

    // Of equal columns the first place is kept.
    __device__ void insert(Index column, uint32_t place) const {
        for (int64_t slot = home(column);; slot = after(slot)) {
            const Index old = claim(keys + slot, column);
            if (old != Index(-1) && old != column) continue;
            atomicMin(places + slot, place);
            return;
        }
    }

    // The slot of a column, or -1.
    __device__ int64_t find(Index column) const {
        if (capacity == 0) return -1;
        for (int64_t slot = home(column);; slot = after(slot)) {
            const Index key = __ldg(keys + slot);
            if (key == column) return slot;
            if (key == Index(-1)) return -1;
        }
    }

private:
    // Takes an empty slot; returns what was there.
    __device__ static int32_t claim(int32_t* slot, int32_t column) {
        return static_cast<int32_t>(atomicCAS(reinterpret_cast<uint32_t*>(slot), ~uint32_t(0), static_cast<uint32_t>(column)));
    }
    __device__ static int64_t claim(int64_t* slot, int64_t column) {
        return static_cast<int64_t>(atomic_cas(reinterpret_cast<uint64_t*>(slot), ~uint64_t(0), static_cast<uint64_t>(column)));
    }
};

struct SourceTables {
    const int64_t* src_ptr;
    Index* keys;
    uint32_t* places;

    __device__ SourceTable of(int64_t batch) const {
        const int64_t begin = src_ptr[batch];
        return {keys + 4 * begin, places + 4 * begin, 4 * (src_ptr[batch + 1] - begin)};
    }
};

#define SPSAMPLE_TABLES_PARAMETERS const int64_t *src_ptr, Index *table_keys, uint32_t *table_places
#define SPSAMPLE_TABLES \
    SourceTables { src_ptr, table_keys, table_places }

// Fills the tables: one thread a src column. O(src) expected.
extern "C" __global__ void insert_sources(SPSAMPLE_TABLES_PARAMETERS, int64_t batches, const Index* src) {
    const SourceTables tables = SPSAMPLE_TABLES;
    for (int64_t i = thread_index(); i < src_ptr[batches]; i += thread_count()) {
        const int64_t batch = part_of(src_ptr, batches, i);
        tables.of(batch).insert(src[i], static_cast<uint32_t>(i - src_ptr[batch]));
    }
}

// Marks the kept entries. ends (rows + 1): where each row's entries begin in the frontier, which has `total`. bits: 8 words for
// each chunk of 256 entries; counts: kept ones of each chunk. One warp a chunk.
extern "C" __global__ void mark_members(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_TABLES_PARAMETERS,
                                        const int64_t* ends, int64_t total, uint32_t* bits, int64_t* counts) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const SourceTables tables = SPSAMPLE_TABLES;
    const int64_t chunks = chunks_of(total);
    for (int64_t chunk = warp_index(); chunk < chunks; chunk += warp_count()) {
        const int64_t begin = chunk * kChunk, end = begin + kChunk < total ? begin + kChunk : total;
        const Window rows = window_of(ends, Q.num_rows, begin, end - 1);
        const Window batches = window_of(Q.batch_ptr, Q.num_batches, rows.first, rows.first + rows.count - 1);
        Index columns[kChunkSteps];  // all are read before the first is looked up
#pragma unroll
        for (int step = 0; step < kChunkSteps; ++step) {
            const int64_t x = begin + step * kWarp + lane_index();
            columns[step] = 0;
            if (x < end) {
                const int64_t row = rows.part_of(x);
                columns[step] = A.columns(Q.vertices[row])[x - ends[row]];
            }
        }
        SourceTable table = tables.of(batches.first);
        uint32_t mine = 0;
#pragma unroll
        for (int step = 0; step < kChunkSteps; ++step) {
            const int64_t x = begin + step * kWarp + lane_index();
            if (batches.count > 1 && x < end) table = tables.of(batches.part_of(rows.part_of(x)));
            const uint32_t word = __ballot_sync(kAllLanes, x < end && table.find(columns[step]) >= 0);
            if (lane_index() == step) mine = word;
        }
        const uint32_t kept = __reduce_add_sync(kAllLanes, static_cast<uint32_t>(__popc(mine)));
        if (lane_index() < kChunkSteps) bits[chunk * kChunkSteps + lane_index()] = mine;
        if (lane_index() == 0) counts[chunk] = kept;
    }
}

// kept_ends (rows + 1): where each row's kept entries begin, from the inclusive sums of the chunks' counts. One thread a row.
extern "C" __global__ void count_kept(
    const int64_t* ends, int64_t rows, const uint32_t* bits, const int64_t* chunk_ends, int64_t* kept_ends) {
    for (int64_t r = thread_index(); r <= rows; r += thread_count()) {
        const int64_t chunk = ends[r] / kChunk;
        const int within = static_cast<int>(ends[r] % kChunk);
        const uint32_t* words = bits + chunk * kChunkSteps;
        int64_t kept = chunk > 0 ? chunk_ends[chunk - 1] : 0;
        for (int w = 0; w < within / kWarp; ++w) kept += __popc(words[w]);
        if (within % kWarp != 0) kept += __popc(words[within / kWarp] & ((1u << (within % kWarp)) - 1));
        kept_ends[r] = kept;
    }
}

// The place of the n-th (from 0) of the bits that are set.
__device__ inline int nth_bit(uint32_t bits, int n) {
    int place = 0;
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2) {
        const int below = __popc(bits & ((1u << half) - 1));
        if (n < below) continue;
        n -= below;
        bits >>= half;
        place += half;
    }
    return place;
}

// Writes the kept entries: local columns, and positions in A where `positions` is not null. One warp a chunk, one lane an entry.
extern "C" __global__ void write_members(SPSAMPLE_ROWS_PARAMETERS, SPSAMPLE_SELECTOR_PARAMETERS, SPSAMPLE_TABLES_PARAMETERS,
                                         const int64_t* ends, int64_t total, const uint32_t* bits, const int64_t* chunk_ends,
                                         Index* local, int64_t* positions) {
    const Rows A = SPSAMPLE_ROWS;
    const Selector Q = SPSAMPLE_SELECTOR;
    const SourceTables tables = SPSAMPLE_TABLES;
    const int64_t chunks = chunks_of(total);
    for (int64_t chunk = warp_index(); chunk < chunks; chunk += warp_count()) {
        const int64_t before = chunk > 0 ? chunk_ends[chunk - 1] : 0;
        const int kept = static_cast<int>(chunk_ends[chunk] - before);
        if (kept == 0) continue;
        const int64_t begin = chunk * kChunk, end = begin + kChunk < total ? begin + kChunk : total;
        const Window rows = window_of(ends, Q.num_rows, begin, end - 1);
        const Window batches = window_of(Q.batch_ptr, Q.num_batches, rows.first, rows.first + rows.count - 1);
        const uint32_t mine = lane_index() < kChunkSteps ? bits[chunk * kChunkSteps + lane_index()] : 0;
        const uint32_t rank = sum_below(static_cast<uint32_t>(__popc(mine)));
        for (int first = 0; first < kept; first += kWarp) {
            const int number = first + lane_index();
            int word = 0;  // that holds it
            for (int half = kChunkSteps / 2; half > 0; half /= 2) {
                if (static_cast<int>(__shfl_sync(kAllLanes, rank, word + half)) <= number) word += half;
            }
            const uint32_t of_word = __shfl_sync(kAllLanes, mine, word);
            const int within = number - static_cast<int>(__shfl_sync(kAllLanes, rank, word));
            if (number >= kept) continue;
            const int64_t x = begin + word * kWarp + nth_bit(of_word, within);
            const int64_t r = rows.part_of(x), row = Q.vertices[r], entry = x - ends[r];
            const SourceTable table = tables.of(batches.part_of(r));
            local[before + number] = static_cast<Index>(table.places[table.find(A.columns(row)[entry])]);
            if (positions) positions[before + number] = A.begin(row) + entry;
        }
    }
}
