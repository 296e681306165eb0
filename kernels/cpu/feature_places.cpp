// find_places: ids split into those that have a place (feature_places.h), with the places, and the others.
#include "feature_places.h"

#include <nanobind/stl/tuple.h>

namespace spsample {
namespace {

constexpr int64_t kChunk = 1 << 14;  // ids

// words: ceil(num_vertices / 32), ids: in range; in any order, repeats allowed. Gives the positions of ids that have a place, ascending, their
// places, and the positions of the others, ascending. O(ids), in parallel: chunks are split where they lie, then put together.
template <class Index>
std::tuple<nb::object, nb::object, nb::object> find_places(const In<uint64_t>& words, int64_t num_vertices, const In<Index>& ids) {
    const int64_t count = static_cast<int64_t>(ids.size());
    Buffer<int64_t> hits, hit_places, misses;
    {
        nb::gil_scoped_release release;
        require_kept_ids(words, num_vertices, ids);
        Buffer<int64_t> positions(count), places(count);
        JoinedParts found(count, kChunk);
        parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
            const SplitChunk chunk{positions.data() + begin, places.data() + begin, end - begin};
            found.set(begin, chunk.split(words.data(), ids.data() + begin, begin));
        });
        found.join();
        hits = Buffer<int64_t>(found.total());
        hit_places = Buffer<int64_t>(found.total());
        misses = Buffer<int64_t>(count - found.total());
        parallel_chunks(count, kChunk, [&](int64_t begin, int64_t end) {
            const int64_t first = found.first(begin), size = found.size(begin);
            std::copy_n(positions.data() + begin, size, hits.data() + first);
            std::copy_n(places.data() + begin, size, hit_places.data() + first);
            std::reverse_copy(positions.data() + begin + size, positions.data() + end, misses.data() + begin - first);
        });
    }
    return {to_numpy(std::move(hits)), to_numpy(std::move(hit_places)), to_numpy(std::move(misses))};
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("find_places", &find_places<Index>, nb::arg("words"), nb::arg("num_vertices"), nb::arg("ids").noconvert(),
          "Positions of the ids that have a place, the places, and positions of the others.");
}

}  // namespace

void bind_feature_places(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
