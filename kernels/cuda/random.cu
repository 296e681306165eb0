// Philox words (docs/law.md, sections 1 and 5).
#include "device.h"

using namespace spsample;

__device__ inline PhiloxKey key_of(int64_t key) {
    return {static_cast<uint32_t>(key), static_cast<uint32_t>(static_cast<uint64_t>(key) >> 32)};
}

// words (count, 4) of counters (count, 4). One thread a counter.
extern "C" __global__ void philox(const uint32_t* counters, int64_t count, int64_t key, uint32_t* words) {
    for (int64_t r = thread_index(); r < count; r += thread_count()) {
        const uint32_t* c = counters + 4 * r;
        const PhiloxWords w = philox4x32_10({{c[0], c[1], c[2], c[3]}}, key_of(key));
        words[4 * r] = w.w[0];
        words[4 * r + 1] = w.w[1];
        words[4 * r + 2] = w.w[2];
        words[4 * r + 3] = w.w[3];
    }
}

// words (count): the 64-bit word of each position. One thread a position.
extern "C" __global__ void shuffle_words(int64_t count, int64_t key, uint64_t* words) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const uint64_t position = static_cast<uint64_t>(i);
        const PhiloxWords w =
            philox4x32_10({{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0}}, key_of(key));
        words[i] = wide_word(w.w[0], w.w[1]);
    }
}
