// Open addressing hash map from non-negative integers on memory that the caller owns. For host and device.
//
// Capacity: a power of two, at least twice the number of keys (`hash_capacity`); linear probing; expected O(1) per
// operation. The bits of a result never depend on the order of slots: kernels number keys by insertion or sort them.
// Any number of threads may look up; insertion is for one thread at a time.
#pragma once

#include "spsample/config.h"

namespace spsample {

// Slots for `elements` keys at a load of one half at most.
SPSAMPLE_HD inline int64_t hash_capacity(int64_t elements) {
    int64_t capacity = 8;
    while (capacity / 2 < elements) {
        capacity *= 2;
    }
    return capacity;
}

// keys, values: `capacity` elements each, cleared before use. Key: a signed integer type.
template <class Key, class Value>
struct HashMap {
    static constexpr Key kEmpty = -1;
    Key* keys;
    Value* values;
    int64_t capacity;

    // First slot to try: Fibonacci hashing, middle bits of a product.
    SPSAMPLE_HD int64_t home(Key key) const {
        const uint64_t product = static_cast<uint64_t>(key) * uint64_t(0x9E3779B97F4A7C15);
        return static_cast<int64_t>((product >> 24) & static_cast<uint64_t>(capacity - 1));
    }

    SPSAMPLE_HD void clear() {
        for (int64_t slot = 0; slot < capacity; ++slot) {
            keys[slot] = kEmpty;
        }
    }

    // The slot that holds the key, or the empty one where it belongs.
    SPSAMPLE_HD int64_t slot_of(Key key) const {
        int64_t slot = home(key);
        while (keys[slot] != kEmpty && keys[slot] != key) {
            slot = (slot + 1) & (capacity - 1);
        }
        return slot;
    }

    // Slot of the key, or -1.
    SPSAMPLE_HD int64_t find(Key key) const {
        const int64_t slot = slot_of(key);
        return keys[slot] == key ? slot : -1;
    }

    SPSAMPLE_HD bool contains(Key key) const { return find(key) >= 0; }

    // Puts (key, value) in where the key is new; an old key keeps its value. Returns the slot.
    SPSAMPLE_HD int64_t insert(Key key, Value value, bool* is_new) {
        const int64_t slot = slot_of(key);
        *is_new = keys[slot] != key;
        if (*is_new) {
            keys[slot] = key;
            values[slot] = value;
        }
        return slot;
    }
};

}  // namespace spsample
