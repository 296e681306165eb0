// A set of columns for each of k batches, as bits over all n columns: what compaction, extraction and merging by column rest on.
//
// Each batch has `slots` slots of 32 columns, a multiple of 32 of them. In a slot `known` marks columns that have a place already (the
// targets, or the src columns of an extraction) and `found` those that were met; the ranks count the known and the new (found and not
// known) columns of the batch before the slot. A column's place among its batch's vertices is that of a known one, read from `places`
// by rank, or the number of known ones plus its rank among the new, ascending. Any order of insertion gives the same bits.
// Memory: 16 bytes for 32 columns of a batch.
#pragma once

#include "device.h"

namespace spsample {

constexpr int64_t kSlotsPerChunk = 32;  // slots that one warp ranks at a time

struct alignas(16) ColumnSlot {
    uint32_t known;
    uint32_t found;
    uint32_t known_rank;
    uint32_t new_rank;
};

// table: k * slots slots. known_ptr (k + 1): where each batch's known vertices begin among all; places: the place of each known column
// within its batch, by rank.
struct ColumnSets {
    ColumnSlot* table;
    int64_t slots;
    const int64_t* known_ptr;
    const uint32_t* places;

    __device__ ColumnSlot* slot(int64_t batch, int64_t column) const { return table + batch * slots + (column >> 5); }

    __device__ static uint32_t bit(int64_t column) { return 1u << (column & 31); }

    __device__ static void set(uint32_t* word, uint32_t bit) {
        if ((load_relaxed(word) & bit) == 0) atomicOr(word, bit);
    }

    __device__ void mark_known(int64_t batch, int64_t column) const { set(&slot(batch, column)->known, bit(column)); }
    __device__ void mark_found(int64_t batch, int64_t column) const { set(&slot(batch, column)->found, bit(column)); }

    __device__ bool is_known(int64_t batch, int64_t column) const { return (slot(batch, column)->known & bit(column)) != 0; }

    __device__ ColumnSlot load(int64_t batch, int64_t column) const { return *slot(batch, column); }

    // Rank of a known column among its batch's known ones.
    __device__ static int64_t known_rank(const ColumnSlot& slot, int64_t column) {
        return slot.known_rank + __popc(slot.known & (bit(column) - 1));
    }

    // Rank of a new column among its batch's new ones.
    __device__ static int64_t new_rank(const ColumnSlot& slot, int64_t column) {
        return slot.new_rank + __popc(slot.found & ~slot.known & (bit(column) - 1));
    }

    // Place of a known or found column among its batch's vertices.
    __device__ int64_t place(int64_t batch, int64_t column) const {
        const ColumnSlot slot = load(batch, column);
        const int64_t begin = known_ptr[batch];
        if ((slot.known & bit(column)) != 0) return places[begin + known_rank(slot, column)];
        return known_ptr[batch + 1] - begin + new_rank(slot, column);
    }

    // Place of a column among the known ones, or -1.
    __device__ int64_t find(int64_t batch, int64_t column) const {
        const ColumnSlot slot = load(batch, column);
        if ((slot.known & bit(column)) == 0) return -1;
        return places[known_ptr[batch] + known_rank(slot, column)];
    }
};

#define SPSAMPLE_SETS_PARAMETERS \
    void *sets_table, int64_t sets_slots, const int64_t *sets_known_ptr, const uint32_t *sets_places
#define SPSAMPLE_SETS \
    ColumnSets { static_cast<ColumnSlot*>(sets_table), sets_slots, sets_known_ptr, sets_places }

}  // namespace spsample
