// The outcomes chosen so far, in the order first drawn, on memory that the caller owns. For host and device.
#pragma once

#include "spsample/hash_table.h"

namespace spsample {

// Up to this many outcomes a linear scan finds one faster than a hash table.
constexpr int64_t kLinearLimit = 32;

// Slots of the hash table for at most `limit` outcomes; 0 where a scan serves.
SPSAMPLE_HD inline int64_t chosen_capacity(int64_t limit) { return limit <= kLinearLimit ? 0 : hash_capacity(limit); }

// outcomes: room for `limit` elements; index: map from outcome to its number, of capacity chosen_capacity(limit), cleared.
// Outcomes are >= 0. O(1) expected per operation, or O(count) up to kLinearLimit.
struct Chosen {
    int64_t* outcomes;
    int64_t count;
    HashMap<int64_t, int64_t> index;

    // Number of the outcome, in order of choice, or -1.
    SPSAMPLE_HD int64_t find(int64_t outcome) const {
        if (index.capacity != 0) {
            const int64_t slot = index.find(outcome);
            return slot < 0 ? -1 : index.values[slot];
        }
        for (int64_t number = 0; number < count; ++number) {
            if (outcomes[number] == outcome) return number;
        }
        return -1;
    }

    SPSAMPLE_HD bool contains(int64_t outcome) const { return find(outcome) >= 0; }

    // Adds the outcome where it is new. Returns its number.
    SPSAMPLE_HD int64_t add(int64_t outcome) {
        if (index.capacity != 0) {
            bool is_new = false;
            const int64_t slot = index.insert(outcome, count, &is_new);
            if (is_new) outcomes[count++] = outcome;
            return index.values[slot];
        }
        const int64_t number = find(outcome);
        if (number >= 0) return number;
        outcomes[count] = outcome;
        return count++;
    }
};

// Ascending, in place; heap sort: O(count log count), no further memory.
SPSAMPLE_HD inline void sort_ascending(int64_t* values, int64_t count) {
    for (int64_t end = count, root = count / 2; end > 1;) {
        if (root > 0) {
            --root;
        } else {
            --end;
            const int64_t largest = values[0];
            values[0] = values[end];
            values[end] = largest;
        }
        const int64_t sinking = values[root];
        int64_t hole = root;
        for (int64_t child = 2 * hole + 1; child < end; child = 2 * hole + 1) {
            if (child + 1 < end && values[child] < values[child + 1]) ++child;
            if (values[child] <= sinking) break;
            values[hole] = values[child];
            hole = child;
        }
        values[hole] = sinking;
    }
}

}  // namespace spsample
