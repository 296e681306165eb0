// The src columns of each batch as sets: a filter of bits, which tells of most columns that they are absent, and a hash table, which
// tells of the others and knows each column's place.
#pragma once

#include "device.h"
#include "spsample/key_filter.h"

namespace spsample {

// Open addressing with four slots for each column, so that a column that is absent is known to be after 1.2 looks on average. The
// bits of a result do not depend on the order of insertion. keys: -1 where empty; places: all ones where empty.
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

constexpr int kMostFilterWords = 1 << 11;  // of a batch; extraction.py chooses how many

// Of all batches. src_ptr (batches + 1); keys and places (4 src); filter_words: 2^(27 - filter_shift) of each batch.
struct Sources {
    const int64_t* src_ptr;
    Index* keys;
    uint32_t* places;
    uint32_t* filter_words;
    int filter_shift;

    __device__ SourceTable table(int64_t batch) const {
        const int64_t begin = src_ptr[batch];
        return {keys + 4 * begin, places + 4 * begin, 4 * (src_ptr[batch + 1] - begin)};
    }
    __device__ int filter_size() const { return 1 << (27 - filter_shift); }
    __device__ KeyFilter filter(int64_t batch) const { return {filter_words + batch * filter_size(), filter_shift}; }

    __device__ void insert(int64_t batch, Index column, uint32_t place) const {
        table(batch).insert(column, place);
        const KeyFilter bits = filter(batch);
        const uint32_t bit = bits.bit(static_cast<uint64_t>(column));
        atomicOr(bits.words + (bit >> 5), 1u << (bit & 31));
    }
};

#define SPSAMPLE_SOURCES_PARAMETERS \
    const int64_t *src_ptr, Index *table_keys, uint32_t *table_places, uint32_t *filter_words, int64_t filter_shift
#define SPSAMPLE_SOURCES \
    Sources { src_ptr, table_keys, table_places, filter_words, static_cast<int>(filter_shift) }

}  // namespace spsample
