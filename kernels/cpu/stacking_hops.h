// Arrays of the hops of a subgraph as one: each batch's parts side by side, hop after hop.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "bindings.h"
#include "parallel.h"

namespace spsample {

// Where the parts of k batches and h hops are and go, in items: part (i, h) is hop h's [from[h][i], from[h][i + 1]).
struct Places {
    std::vector<const int64_t*> from;
    int64_t num_batches;
    Buffer<int64_t> begin;  // k h + 1: where the parts begin in the result, batch after batch

    // Batches have `extra` items before their parts.
    Places(std::vector<const int64_t*> pointers, int64_t batches, int64_t extra)
        : from(std::move(pointers)), num_batches(batches), begin(batches * hops() + 1) {
        begin[0] = 0;
        for (int64_t i = 0; i < num_batches; ++i) {
            for (int64_t h = 0; h < hops(); ++h) {
                const int64_t size = count(i, h) + (h == 0 ? extra : 0);
                begin[i * hops() + h + 1] = checked_sum(begin[i * hops() + h], size);
            }
        }
    }

    int64_t hops() const { return static_cast<int64_t>(from.size()); }
    int64_t count(int64_t i, int64_t h) const { return from[static_cast<size_t>(h)][i + 1] - from[static_cast<size_t>(h)][i]; }
    int64_t first(int64_t i, int64_t h) const { return from[static_cast<size_t>(h)][i]; }
    int64_t place(int64_t i, int64_t h) const { return begin[i * hops() + h]; }
    int64_t total() const { return begin[num_batches * hops()]; }
};

// parts: one array per hop, null where its parts are in their places. O(bytes), in parallel over batches.
inline void interleave_parts(const Places& places, const std::vector<const void*>& parts, int64_t item_size, void* out) {
    parallel_chunks(places.num_batches, 1, [&](int64_t i, int64_t) {
        for (int64_t h = 0; h < places.hops(); ++h) {
            const size_t bytes = static_cast<size_t>(places.count(i, h) * item_size);
            const void* const part = parts[static_cast<size_t>(h)];
            if (!part || bytes == 0) continue;
            const uint8_t* const from = static_cast<const uint8_t*>(part) + places.first(i, h) * item_size;
            std::memcpy(static_cast<uint8_t*>(out) + places.place(i, h) * item_size, from, bytes);
        }
    });
}

// Row pointers over the rows of all hops that start at 0 in every batch. parts: the row pointers of each hop, stacked (rows + k);
// places: of the rows, with one item more for each batch. O(rows), in parallel over batches.
inline void interleave_row_pointers(const Places& places, const std::vector<const int64_t*>& parts, int64_t* out) {
    parallel_chunks(places.num_batches, 1, [&](int64_t i, int64_t) {
        int64_t* to = out + places.place(i, 0);
        int64_t entries = 0;
        *to++ = 0;
        for (int64_t h = 0; h < places.hops(); ++h) {
            const int64_t* from = parts[static_cast<size_t>(h)] + places.first(i, h) + i + 1;
            for (int64_t r = 0; r < places.count(i, h); ++r) *to++ = entries + from[r];
            entries = to[-1];
        }
    });
}

// Vertices of k batches, stacked.
template <class Index>
struct StackedIds {
    Buffer<int64_t> ptr;  // k + 1
    Buffer<Index> ids;
};

// What stands behind the first ids of each batch. Batch i owns known[known_ptr[i] .. known_ptr[i + 1]), of which it leaves out the
// first found_ptr[i + 1] - found_ptr[i]. O(ids), in parallel over batches.
template <class Index>
StackedIds<Index> appended_ids(const int64_t* found_ptr, const int64_t* known_ptr, const Index* known, int64_t num_batches) {
    StackedIds<Index> all{Buffer<int64_t>(num_batches + 1), {}};
    all.ptr[0] = 0;
    for (int64_t i = 0; i < num_batches; ++i) {
        const int64_t before = found_ptr[i + 1] - found_ptr[i], size = known_ptr[i + 1] - known_ptr[i];
        require(before >= 0 && before <= size, "found_ptr", "a batch knows no fewer ids than it had found");
        all.ptr[i + 1] = all.ptr[i] + size - before;
    }
    all.ids = Buffer<Index>(all.ptr[num_batches]);
    parallel_chunks(num_batches, 1, [&](int64_t i, int64_t) {
        const int64_t count = all.ptr[i + 1] - all.ptr[i];
        std::copy_n(known + known_ptr[i + 1] - count, count, all.ids.data() + all.ptr[i]);
    });
    return all;
}

}  // namespace spsample
