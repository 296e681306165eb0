// cut_batches: seeds cut into batches, and whether a batch has one of them twice.
#include <algorithm>
#include <atomic>
#include <vector>

#include "bindings.h"
#include "parallel.h"
#include "scratch.h"
#include "spsample/hash_table.h"

namespace spsample {
namespace {

constexpr int64_t kFewSeeds = 16;  // of a batch, each compared with those before it
constexpr int64_t kSeedWork = 4;  // as elements of a loop

template <class Index>
bool repeats_among_few(const Index* ids, int64_t count) {
    bool found = false;
    for (int64_t i = 1; i < count; ++i) {
        for (int64_t j = 0; j < i; ++j) found |= ids[i] == ids[j];
    }
    return found;
}

// Whether an id, none of them negative, is there twice. O(count).
template <class Index>
bool repeats_among(const Index* ids, int64_t count, std::vector<Index>& table) {
    if (count <= kFewSeeds) return repeats_among_few(ids, count);
    const int64_t capacity = hash_capacity(count);
    const HashMap<Index, Index> seen{grown(table, capacity), nullptr, capacity};
    std::fill_n(seen.keys, capacity, HashMap<Index, Index>::kEmpty);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t slot = seen.slot_of(ids[i]);
        if (seen.keys[slot] == ids[i]) return true;
        seen.keys[slot] = ids[i];
    }
    return false;
}

// Seeds (>= 0, below 2^31 where Index is int32) as Index, and whether one of the batches has one of them twice.
template <class Index>
bool convert_batches(const In<int64_t>& seeds, const Buffer<int64_t>& ptr, Buffer<Index>& ids) {
    std::atomic<bool> repeats{false};
    const ThreadsFor threads(checked_product(kSeedWork, ids.size()));
    const auto make_table = [] { return std::vector<Index>(); };
    parallel_chunks(ptr.size() - 1, 1, make_table, [&](std::vector<Index>& table, int64_t batch, int64_t) {
        const int64_t begin = ptr[batch], end = ptr[batch + 1];
        for (int64_t i = begin; i < end; ++i) ids[i] = static_cast<Index>(seeds.data()[i]);
        if (repeats_among(ids.data() + begin, end - begin, table)) repeats = true;
    });
    return repeats;
}

// (batch_ptr, ids, batch_ids, repeats) of runs of `batch_size` seeds, the last one shorter. O(seeds).
template <class Index>
nb::tuple cut_into(const In<int64_t>& seeds, int64_t batch_size, int64_t first_batch) {
    const int64_t count = static_cast<int64_t>(seeds.size()), batches = count / batch_size + (count % batch_size != 0);
    Buffer<int64_t> ptr(batches + 1), batch_ids(batches);
    Buffer<Index> ids(count);
    for (int64_t i = 0; i < batches; ++i) {
        ptr[i] = i * batch_size;
        batch_ids[i] = first_batch + i;
    }
    ptr[batches] = count;
    bool repeats;
    {
        nb::gil_scoped_release release;
        repeats = convert_batches(seeds, ptr, ids);
    }
    return nb::make_tuple(to_numpy(std::move(ptr)), to_numpy(std::move(ids)), to_numpy(std::move(batch_ids)), repeats);
}

nb::tuple cut_batches(const In<int64_t>& seeds, int64_t batch_size, int64_t first_batch, bool wide) {
    require(batch_size >= 1, "batch_size", "must be at least 1");
    require(in_range(seeds.data(), static_cast<int64_t>(seeds.size()), wide ? INT64_MAX : int64_t(1) << 31), "seeds", "an id is negative, or too large");
    return wide ? cut_into<int64_t>(seeds, batch_size, first_batch) : cut_into<int32_t>(seeds, batch_size, first_batch);
}

bool ids_below(const In<int64_t>& ids, int64_t limit) { return in_range(ids.data(), static_cast<int64_t>(ids.size()), limit); }

}  // namespace

void bind_seeds(nb::module_& m) {
    m.def("ids_below", &ids_below, nb::arg("ids"), nb::arg("limit"), "Whether all ids are in [0, limit).");
    m.def("cut_batches", &cut_batches, nb::arg("seeds"), nb::arg("batch_size"), nb::arg("first_batch"), nb::arg("wide"),
          "(batch_ptr, ids, batch_ids, whether a batch has a seed twice) of runs of batch_size seeds; ids int64 where wide, else int32.");
}

}  // namespace spsample
