// Drawing distinct outcomes for one batch by the threads of a block (docs/law.md, section 3): entry law and column law.
//
// A chunk of draws, one a thread, is made at once. Each puts its outcome into a hash table with its own number in the chunk: a
// draw is new where the outcome has no number from an earlier chunk and no smaller one in this. The new ones of a chunk, in the
// order of draws, are the next outcomes. So the result is that of the draws one after the other, whatever the order of threads.
#pragma once

#include "block_sums.h"
#include "spsample/its.h"

namespace spsample {

constexpr int64_t kSharedSlots = 2048;  // a table of up to this number of slots lies in shared memory
constexpr uint32_t kPending = uint32_t(1) << 31;

// Map from an outcome (>= 0) to its number, in the order first drawn; kPending + thread for a draw of the chunk at hand.
// keys: -1 where empty; numbers: `capacity` each, a power of two, at least twice as many as outcomes in it.
struct OutcomeTable {
    int64_t* keys;
    uint32_t* numbers;
    int64_t capacity;

    // By all threads of the block, which no longer use what was in it.
    __device__ void clear() const {
        for (int64_t slot = threadIdx.x; slot < capacity; slot += blockDim.x) {
            keys[slot] = -1;
            numbers[slot] = ~uint32_t(0);
        }
        __syncthreads();
    }

    // The slot of the outcome, whose number becomes the smaller one. Any number of threads at a time.
    __device__ int64_t put(int64_t outcome, uint32_t number) const {
        const HashMap<int64_t, uint32_t> map = {keys, numbers, capacity};
        for (int64_t slot = map.home(outcome);; slot = (slot + 1) & (capacity - 1)) {
            int64_t found = load_relaxed(keys + slot);
            if (found == -1) {
                found = static_cast<int64_t>(
                    atomic_cas(reinterpret_cast<uint64_t*>(keys + slot), ~uint64_t(0), static_cast<uint64_t>(outcome)));
            }
            if (found == -1 || found == outcome) {
                atomicMin(numbers + slot, number);
                return slot;
            }
        }
    }
};

// The table's memory: `capacity` slots for each block of the grid, or null where they fit in shared memory.
#define SPSAMPLE_TABLE_PARAMETERS int64_t *table_keys, uint32_t *table_numbers, int64_t table_capacity
#define SPSAMPLE_TABLE                                                                                     \
    table_keys ? OutcomeTable{table_keys + blockIdx.x * table_capacity,                                    \
                              table_numbers + blockIdx.x * table_capacity, table_capacity}                 \
               : OutcomeTable {                                                                            \
        shared_keys, shared_numbers, table_capacity                                                        \
    }

// What one batch has drawn so far. All threads of the block hold the same, and call together.
//   outcomes  room for the `size` first ones, in the order first drawn; further ones are counted only
//   counts    how often each was drawn (zeros before), or null
struct Drawn {
    OutcomeTable table;
    int64_t* outcomes;
    int64_t* counts;
    int64_t size;
    int64_t count;

    // One more chunk of draws: this thread's outcome, if it has one.
    __device__ void add(bool has_one, int64_t outcome) {
        const uint32_t mine = kPending + threadIdx.x;
        const int64_t slot = has_one ? table.put(outcome, mine) : 0;
        __syncthreads();
        const bool is_new = has_one && table.numbers[slot] == mine;
        int64_t total = 0;
        const int64_t number = count + block_rank(is_new, &total);
        if (is_new) {
            table.numbers[slot] = static_cast<uint32_t>(number);
            if (number < size) outcomes[number] = outcome;
        }
        __syncthreads();
        if (counts) {
            if (has_one) atomic_add(counts + table.numbers[slot], int64_t(1));
            __syncthreads();
        }
        count += total;
    }

    // Puts the outcomes that are there already into the table, which is empty.
    __device__ void restore() const {
        for (int64_t number = threadIdx.x; number < count; number += blockDim.x) {
            table.put(outcomes[number], static_cast<uint32_t>(number));
        }
        __syncthreads();
    }
};

// Draws first .. last - 1 from [0, total), of which find(x) is the outcome of unit x; ends early once `size` outcomes are
// there, where `until_full`.
template <class Find>
__device__ inline void draw_chunks(
    const Find& find, DrawStream& draws, uint64_t total, int64_t first, int64_t last, bool until_full, Drawn& drawn) {
    for (; first < last && !(until_full && drawn.count >= drawn.size); first += blockDim.x) {
        const int64_t draw = first + threadIdx.x;
        const bool has_one = draw < last;
        drawn.add(has_one, has_one ? find(draws.below(draw, total)) : 0);
    }
}

// What all blocks leave behind: `batches` elements each, and one word of errors.
//   found    number of outcomes
//   totals   T before any redraw
//   whole    whether the support was taken whole
//   entries  number of entries that count (entry law)
struct DrawState {
    int64_t* words;
    int64_t batches;

    __device__ int64_t& found(int64_t batch) const { return words[batch]; }
    __device__ uint64_t& total(int64_t batch) const { return reinterpret_cast<uint64_t*>(words)[batches + batch]; }
    __device__ int64_t& whole(int64_t batch) const { return words[2 * batches + batch]; }
    __device__ int64_t& entries(int64_t batch) const { return words[3 * batches + batch]; }
    __device__ void refuse(int64_t error) const { store_relaxed(words + 4 * batches, error); }
};

constexpr int64_t kNoDrawNumbers = 1;  // the next round would pass the last draw number
constexpr int64_t kWrongGuide = 2;     // the guide table is of other prefix sums

// Sum of elements begin .. end - 1 of values whose inclusive sums these are; they may wrap.
__device__ inline uint64_t sum_between(const uint64_t* inclusive, int64_t begin, int64_t end) {
    return (end > 0 ? inclusive[end - 1] : 0) - (begin > 0 ? inclusive[begin - 1] : 0);
}

// First of `count` positions whose inclusive sum, less `base`, exceeds x. O(log count).
__device__ inline int64_t upper_bound_above(const uint64_t* inclusive, int64_t count, uint64_t base, uint64_t x) {
    int64_t first = 0;
    while (count > 0) {
        const int64_t half = count / 2;
        if (inclusive[first + half] - base <= x) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

}  // namespace spsample
