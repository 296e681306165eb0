// Which vertices have a row among those kept near, and at which place it lies.
//
// A word stands for 32 vertices. Its lower half says which of them have a row, a bit each; its upper half, how many vertices before them
// have one. Rows lie in the order of their vertices, so a vertex's place is the upper half and the ones below its bit: one load, from
// 2 bits a vertex, which caches hold where a table of places would not fit.
#pragma once

#include <algorithm>
#include <vector>

#include "bindings.h"
#include "spsample/config.h"

namespace spsample {

// How many bits are 1. The compiler's own is a call of a function where not every processor has the instruction.
constexpr int64_t ones(uint32_t bits) {
    bits -= (bits >> 1) & 0x55555555;
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333);
    return (((bits + (bits >> 4)) & 0x0F0F0F0F) * 0x01010101u) >> 24;
}

// Of a vertex: whether it has a row, and then its place.
struct KeptPlace {
    int64_t is_kept, place;

    KeptPlace(const uint64_t* words, uint64_t vertex) {
        const uint64_t word = words[vertex / 32], bit = vertex % 32;
        const uint32_t kept = static_cast<uint32_t>(word), below = (uint32_t{1} << bit) - 1;
        is_kept = (kept >> bit) & 1;
        place = static_cast<int64_t>(word >> 32) + ones(kept & below);
    }
};

constexpr int64_t kPlacesAhead = 48;  // ids

// Arrays of a chunk's own ids.
struct SplitChunk {
    int64_t* positions;  // of hits from the front, of misses from the back, the last one first
    int64_t* places;     // of the hits
    int64_t size;

    // The number of hits; `first` is the position of ids[0]. Each position is written at both ends, and one of them moves on: which ids hit
    // cannot be foreseen.
    template <class Index>
    int64_t split(const uint64_t* words, const Index* ids, int64_t first) const {
        int64_t hits = 0, last = size - 1;
        for (int64_t i = 0; i < size; ++i) {
            if (i + kPlacesAhead < size) SPSAMPLE_PREFETCH(words + static_cast<uint64_t>(ids[i + kPlacesAhead]) / 32);
            const KeptPlace found(words, static_cast<uint64_t>(ids[i]));
            positions[hits] = first + i;
            positions[last] = first + i;
            places[hits] = found.place;
            hits += found.is_kept;
            last -= 1 - found.is_kept;
        }
        return hits;
    }
};

// ids: in [0, num_vertices), which `words` stand for.
template <class Index>
void require_kept_ids(const In<uint64_t>& words, int64_t num_vertices, const In<Index>& ids) {
    if (num_vertices < 0 || static_cast<int64_t>(words.size()) != (num_vertices + 31) / 32) {
        throw std::invalid_argument("words: needs one element for 32 vertices");
    }
    if (!all_below(ids.data(), static_cast<int64_t>(ids.size()), num_vertices)) throw std::out_of_range("ids: outside the vertices");
}

// As many rows as vertices have a bit.
inline void require_kept_rows(const In<uint64_t>& words, int64_t num_rows) {
    const uint64_t last = words.size() ? words.data()[words.size() - 1] : 0;
    require(static_cast<int64_t>(last >> 32) + ones(static_cast<uint32_t>(last)) == num_rows, "words", "must have a bit for each row");
}

// Parts of chunks, one after the other.
class JoinedParts {
public:
    JoinedParts(int64_t count, int64_t chunk) : chunk_(chunk), ends_(static_cast<size_t>((count + chunk - 1) / chunk) + 1, 0) {}

    // The part of the chunk that begins at `begin`; to be called once for each.
    void set(int64_t begin, int64_t size) { ends_[static_cast<size_t>(begin / chunk_) + 1] = size; }
    void join() {
        for (size_t c = 1; c < ends_.size(); ++c) ends_[c] += ends_[c - 1];
    }
    int64_t first(int64_t begin) const { return ends_[static_cast<size_t>(begin / chunk_)]; }
    int64_t size(int64_t begin) const { return ends_[static_cast<size_t>(begin / chunk_) + 1] - first(begin); }
    int64_t total() const { return ends_.back(); }

private:
    const int64_t chunk_;
    std::vector<int64_t> ends_;
};

}  // namespace spsample
