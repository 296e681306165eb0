// Keys by which elements of C = A B are sorted: row * num_columns + column, with 32 bits where these suffice.
#pragma once

#include "device.h"

namespace spsample {

struct Keys {
    void* keys;
    bool wide;

    __device__ uint64_t operator[](int64_t i) const {
        return wide ? static_cast<const uint64_t*>(keys)[i] : static_cast<const uint32_t*>(keys)[i];
    }
    __device__ void set(int64_t i, uint64_t key) const {
        if (wide) {
            static_cast<uint64_t*>(keys)[i] = key;
        } else {
            static_cast<uint32_t*>(keys)[i] = static_cast<uint32_t>(key);
        }
    }
    __device__ int64_t column(int64_t i, int64_t num_columns) const {
        if (wide) return static_cast<int64_t>(static_cast<const uint64_t*>(keys)[i] % static_cast<uint64_t>(num_columns));
        // Narrow keys of one row may go with more columns than 32 bits can count only where the row is the first.
        const uint64_t key = static_cast<const uint32_t*>(keys)[i];
        return static_cast<int64_t>(num_columns >> 32 ? key : key % static_cast<uint32_t>(num_columns));
    }
};

#define KEYS_PARAMETERS void *key_data, int64_t key_wide
#define KEYS \
    Keys { key_data, key_wide != 0 }

}  // namespace spsample
