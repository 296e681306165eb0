// find_places: which vertices have a row among those kept near, and at which place it lies.
//
// A word stands for 32 vertices. Its lower half says which of them have a row, a bit each; its upper half, how many vertices before them
// have one. Rows lie in the order of their vertices, so a vertex's place is the upper half and the ones below its bit: one load, from
// 2 bits a vertex, which caches hold where a table of places would not fit.
#include <algorithm>
#include <vector>

#include <nanobind/stl/tuple.h>

#include "bindings.h"

namespace spsample {
namespace {

constexpr int64_t kChunk = 1 << 14;  // ids

// How many bits are 1. The compiler's own is a call of a function where not every processor has the instruction.
constexpr int64_t ones(uint32_t bits) {
    bits -= (bits >> 1) & 0x55555555;
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333);
    return (((bits + (bits >> 4)) & 0x0F0F0F0F) * 0x01010101u) >> 24;
}

// Arrays of a chunk's own ids, at its own positions in buffers of all ids.
struct Chunk {
    int64_t* positions;  // of hits from the front, of misses from the back, the last one first
    int64_t* places;     // of the hits
    int64_t size;

    // The number of hits. Each position is written at both ends, and one of them moves on: which ids hit cannot be foreseen.
    template <class Index>
    int64_t split(const uint64_t* words, const Index* ids, int64_t first) const {
        int64_t hits = 0, last = size - 1;
        for (int64_t i = 0; i < size; ++i) {
            const uint64_t id = static_cast<uint64_t>(ids[i]), word = words[id / 32], bit = id % 32;
            const uint32_t kept = static_cast<uint32_t>(word), below = (uint32_t{1} << bit) - 1;
            const int64_t is_hit = (kept >> bit) & 1;
            positions[hits] = first + i;
            positions[last] = first + i;
            places[hits] = static_cast<int64_t>(word >> 32) + ones(kept & below);
            hits += is_hit;
            last -= 1 - is_hit;
        }
        return hits;
    }
};

// words: ceil(vertices / 32), ids: in range; in any order, repeats allowed. Gives the positions of ids that have a place, ascending, their
// places, and the positions of the others, ascending. O(ids), in parallel: chunks are split where they lie, then put together.
template <class Index>
std::tuple<nb::object, nb::object, nb::object> find_places(const In<uint64_t>& words, const In<Index>& ids) {
    const int64_t count = static_cast<int64_t>(ids.size());
    Buffer<int64_t> hits, hit_places, misses;
    {
        nb::gil_scoped_release release;
        const int64_t limit = checked_product(static_cast<int64_t>(words.size()), 32);
        if (!all_below(ids.data(), count, limit)) throw std::out_of_range("ids: outside the vertices");
        Buffer<int64_t> positions(count), places(count);
        std::vector<int64_t> before(static_cast<size_t>((count + kChunk - 1) / kChunk) + 1, 0);  // hits of the chunks before one
        parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
            const Chunk chunk{positions.data() + begin, places.data() + begin, end - begin};
            before[static_cast<size_t>(begin / kChunk) + 1] = chunk.split(words.data(), ids.data() + begin, begin);
        });
        for (size_t c = 1; c < before.size(); ++c) before[c] += before[c - 1];
        hits = Buffer<int64_t>(before.back());
        hit_places = Buffer<int64_t>(before.back());
        misses = Buffer<int64_t>(count - before.back());
        parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
            const size_t chunk = static_cast<size_t>(begin / kChunk);
            const int64_t first = before[chunk], found = before[chunk + 1] - first;
            std::copy_n(positions.data() + begin, found, hits.data() + first);
            std::copy_n(places.data() + begin, found, hit_places.data() + first);
            std::reverse_copy(positions.data() + begin + found, positions.data() + end, misses.data() + begin - first);
        });
    }
    return {to_numpy(std::move(hits)), to_numpy(std::move(hit_places)), to_numpy(std::move(misses))};
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("find_places", &find_places<Index>, nb::arg("words"), nb::arg("ids").noconvert(),
          "Positions of the ids that have a place, the places, and positions of the others.");
}

}  // namespace

void bind_feature_places(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
