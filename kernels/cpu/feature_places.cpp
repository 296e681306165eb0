// find_places: which vertices have a row among those kept near, and at which place it lies.
//
// A word stands for 32 vertices. Its lower half says which of them have a row, a bit each; its upper half, how many vertices before them
// have one. Rows lie in the order of their vertices, so a vertex's place is the upper half and the ones below its bit: one load, from
// 2 bits a vertex, which caches hold where a table of places would not fit.
#include <vector>

#include <nanobind/stl/tuple.h>

#include "bindings.h"

namespace spsample {
namespace {

constexpr int64_t kChunk = 1 << 14;  // ids
constexpr int64_t kNowhere = -1;

int64_t place_of(uint64_t word, uint64_t bit) {
    const uint32_t kept = static_cast<uint32_t>(word);
    if (!((kept >> bit) & 1)) return kNowhere;
    return static_cast<int64_t>(word >> 32) + __builtin_popcount(kept & ((uint32_t{1} << bit) - 1));
}

// The place of each id; and for each chunk of ids, how many before it have one, with the number of all at the end.
template <class Index>
std::vector<int64_t> look_up(const uint64_t* words, const Index* ids, int64_t count, int64_t* places) {
    std::vector<int64_t> before(static_cast<size_t>((count + kChunk - 1) / kChunk) + 1, 0);
    parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
        int64_t hits = 0;
        for (int64_t i = begin; i < end; ++i) {
            const uint64_t id = static_cast<uint64_t>(ids[i]);
            places[i] = place_of(words[id / 32], id % 32);
            hits += places[i] != kNowhere;
        }
        before[static_cast<size_t>(begin / kChunk) + 1] = hits;
    });
    for (size_t c = 1; c < before.size(); ++c) before[c] += before[c - 1];
    return before;
}

// words: ceil(vertices / 32), ids: in range; in any order, repeats allowed. Gives the positions of ids that have a place, ascending, their
// places, and the positions of the others, ascending. O(ids), in parallel.
template <class Index>
std::tuple<nb::object, nb::object, nb::object> find_places(const In<uint64_t>& words, const In<Index>& ids) {
    const int64_t count = static_cast<int64_t>(ids.size());
    Buffer<int64_t> hits, hit_places, misses;
    {
        nb::gil_scoped_release release;
        const int64_t limit = checked_product(static_cast<int64_t>(words.size()), 32);
        if (!all_below(ids.data(), count, limit)) throw std::out_of_range("ids: outside the vertices");
        Buffer<int64_t> places(count);
        const std::vector<int64_t> before = look_up(words.data(), ids.data(), count, places.data());
        hits = Buffer<int64_t>(before.back());
        hit_places = Buffer<int64_t>(before.back());
        misses = Buffer<int64_t>(count - before.back());
        parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
            int64_t hit = before[static_cast<size_t>(begin / kChunk)], miss = begin - hit;
            for (int64_t i = begin; i < end; ++i) {
                if (places[i] == kNowhere) {
                    misses[miss++] = i;
                } else {
                    hits[hit] = i;
                    hit_places[hit++] = places[i];
                }
            }
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
