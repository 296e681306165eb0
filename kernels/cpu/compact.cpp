// compact: src vertices of k batches in their order, and drawn columns as indices into them (docs/law.md, section 4).
//
// One batch at a time, each by one thread. The targets and the columns of a batch are sets of vertices. Where the batch is not
// tiny against its largest vertex id, they are bit sets: reading the words in order gives the new vertices ascending, and the
// number of bits before a vertex (its rank) leads to its index in src. Else they are a hash table, and the new ones are sorted.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bindings.h"
#include "numbering.h"
#include "parallel.h"
#include "room.h"
#include "simd.h"

namespace spsample {
namespace {

constexpr int64_t kWordsPerElement = 4;  // bit sets serve up to so many words per target and entry of a batch
constexpr int64_t kFewWords = 1024;      // or up to so many

// One batch: its targets (none where they are not to be in src) and the columns of its entries.
template <class Index>
struct BatchColumns {
    const Index* targets;
    int64_t num_targets;
    const Index* columns;
    int64_t num_entries;
};

// The new vertices of a batch, ascending, in a block that other batches of the thread may share.
template <class Index>
struct NewVertices {
    RoomPiece<Index> piece;
    Index* vertices = nullptr;
    int64_t count = 0;
};

// The `count` vertices just written where `reserve` said.
template <class Index>
NewVertices<Index> kept(int64_t count, Room<Index>& room) {
    RoomPiece<Index> piece = room.keep(count);
    Index* const vertices = piece.items;
    return {std::move(piece), vertices, count};
}

// --- by bit sets ------------------------------------------------------------------------------------------------------------

// Two empty bit sets and their ranks, n/2 bytes, and 4 bytes for each vertex of a batch. Empty again after every batch.
class BitScratch {
public:
    // Sets for vertices up to `largest`.
    BitSets sets(int64_t largest) {
        const int64_t num_words = (largest / 512 + 1) * 8;
        if (known_.size() < num_words) {
            known_ = zeros(num_words);
            found_ = zeros(num_words);
            ranks_ = Buffer<RankedWord>(2 * num_words);
        }
        return {known_.data(), found_.data(), ranks_.data(), num_words};
    }

    // Room for one number for each of `count` vertices.
    uint32_t* places(int64_t count) {
        if (places_.size() < count) places_ = Buffer<uint32_t>(count + count / 4);
        return places_.data();
    }

private:
    static Buffer<uint64_t> zeros(int64_t count) {
        Buffer<uint64_t> words(count);
        std::fill(words.data(), words.data() + count, uint64_t(0));
        return words;
    }
    Buffer<uint64_t> known_, found_;
    Buffer<RankedWord> ranks_;
    Buffer<uint32_t> places_;
};

// Adds the vertices to a set. O(count).
template <class Index>
void add_all(const Index* vertices, int64_t count, uint64_t* set) {
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t vertex = static_cast<uint64_t>(vertices[i]);
        set[vertex >> 6] |= uint64_t(1) << (vertex & 63);
    }
}

// Adds distinct vertices to an empty set. Whether they were distinct.
template <class Index>
bool add_distinct(const Index* vertices, int64_t count, uint64_t* set) {
    uint64_t twice = 0;
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t vertex = static_cast<uint64_t>(vertices[i]), bit = uint64_t(1) << (vertex & 63);
        twice |= set[vertex >> 6] & bit;
        set[vertex >> 6] |= bit;
    }
    return twice == 0;
}

// The new vertices of a batch; local: its columns as indices into src. O(largest id / 64 + targets + entries).
template <class Index>
NewVertices<Index> compact_by_bits(
    const BatchColumns<Index>& batch, int64_t largest, BitScratch& scratch, Room<Index>& room, Index* local) {
    const SetFunctions<Index>& functions = instruction_set().sets<Index>();
    const BitSets sets = scratch.sets(largest);
    const bool distinct = add_distinct(batch.targets, batch.num_targets, sets.known);
    require(distinct, "vertices", "must be distinct within a batch");
    add_all(batch.columns, batch.num_entries, sets.found);
    const int64_t most = std::min(batch.num_entries, largest + 1);
    uint32_t* places = scratch.places(batch.num_targets + most + kLanes);
    Index* vertices = room.reserve(most + kLanes);
    const int64_t count = functions.take_new(sets, vertices, static_cast<uint32_t>(batch.num_targets), places);
    functions.place(sets.ranks, batch.targets, batch.num_targets, 0, places);
    functions.relabel(sets.ranks, batch.num_targets > 0 ? places : nullptr, batch.columns, batch.num_entries, local);
    return kept(count, room);
}

// --- by a hash table --------------------------------------------------------------------------------------------------------

template <class Index>
struct HashScratch {
    Numbering<Index> vertices;
    std::vector<Numbered<Index>> order, spare;
    std::vector<Index> rank;  // of the vertices after the targets, by their number
};

// As above. O(targets + entries + sort of the new vertices).
template <class Index>
NewVertices<Index> compact_by_hash(
    const BatchColumns<Index>& batch, HashScratch<Index>& scratch, Room<Index>& room, Index* local) {
    Numbering<Index>& vertices = scratch.vertices;
    vertices.reset(batch.num_targets + batch.num_entries / 2);
    for (int64_t r = 0; r < batch.num_targets; ++r) vertices.number(batch.targets[r]);
    require(vertices.size() == batch.num_targets, "vertices", "must be distinct within a batch");
    for (int64_t e = 0; e < batch.num_entries; ++e) local[e] = vertices.number(batch.columns[e]);
    ascending(vertices, batch.num_targets, scratch.order, scratch.spare);
    const int64_t count = static_cast<int64_t>(scratch.order.size());
    room.reserve(count);
    const NewVertices<Index> added = kept(count, room);
    scratch.rank.resize(scratch.order.size());
    for (int64_t i = 0; i < added.count; ++i) {
        const Numbered<Index>& vertex = scratch.order[static_cast<size_t>(i)];
        added.vertices[i] = vertex.key;
        scratch.rank[static_cast<size_t>(vertex.number - batch.num_targets)] = static_cast<Index>(batch.num_targets + i);
    }
    for (int64_t e = 0; e < batch.num_entries; ++e) {
        if (local[e] >= batch.num_targets) local[e] = scratch.rank[static_cast<size_t>(local[e] - batch.num_targets)];
    }
    return added;
}

// --- one batch --------------------------------------------------------------------------------------------------------------

template <class Index>
struct Scratch {
    BitScratch bits;
    HashScratch<Index> hash;
    Room<Index> room;
};

// The largest of the ids and `floor`; negative ones are refused.
template <class Index>
int64_t largest_id(const Index* ids, int64_t count, int64_t floor, const char* name) {
    const IdRange<Index> range = instruction_set().sets<Index>().id_range(ids, count);
    require(range.smallest >= 0, name, "must not be negative");
    return std::max(floor, static_cast<int64_t>(range.largest));
}

template <class Index>
NewVertices<Index> compact_batch(const BatchColumns<Index>& batch, Scratch<Index>& scratch, Index* local) {
    int64_t largest = largest_id(batch.targets, batch.num_targets, 0, "vertices");
    largest = largest_id(batch.columns, batch.num_entries, largest, "columns");
    const int64_t elements = batch.num_targets + batch.num_entries;
    const bool few_words = largest / 64 <= std::max(kFewWords, kWordsPerElement * elements);
    if (few_words && elements < int64_t(1) << 32) return compact_by_bits(batch, largest, scratch.bits, scratch.room, local);
    return compact_by_hash(batch, scratch.hash, scratch.room, local);
}

// --- all batches ------------------------------------------------------------------------------------------------------------

// The batches of Q where A is not at hand: its vertices are not checked.
template <class Index>
SelectorView<Index> batches_view(const In<int64_t>& batch_ptr, const In<Index>& vertices) {
    const int64_t num_rows = static_cast<int64_t>(vertices.size());
    require_pointers(batch_ptr, num_rows, "batch_ptr");
    return {batch_ptr.data(), vertices.data(), nullptr, static_cast<int64_t>(batch_ptr.size()) - 1, num_rows};
}

template <class Index>
struct Sources {
    Buffer<int64_t> src_ptr;
    Buffer<Index> src;
};

// Each batch's targets, then its new vertices.
template <class Index>
Sources<Index> stacked_sources(
    const SelectorView<Index>& Q, bool include_targets, const std::vector<NewVertices<Index>>& added) {
    Sources<Index> all{Buffer<int64_t>(Q.num_batches + 1), {}};
    const auto num_targets = [&](int64_t i) { return include_targets ? Q.batch_ptr[i + 1] - Q.batch_ptr[i] : 0; };
    all.src_ptr[0] = 0;
    for (int64_t i = 0; i < Q.num_batches; ++i) {
        const int64_t size = checked_sum(num_targets(i), added[static_cast<size_t>(i)].count);
        all.src_ptr[i + 1] = checked_sum(all.src_ptr[i], size);
    }
    all.src = Buffer<Index>(all.src_ptr[Q.num_batches]);
    parallel_chunks(Q.num_batches, 1, [&](int64_t i, int64_t) {
        const NewVertices<Index>& batch = added[static_cast<size_t>(i)];
        const Index* targets = Q.vertices + Q.batch_ptr[i];
        Index* out = std::copy(targets, targets + num_targets(i), all.src.data() + all.src_ptr[i]);
        std::copy(batch.vertices, batch.vertices + batch.count, out);
    });
    return all;
}

// The entries of k batches, by batch.
template <class Index>
struct StackedColumns {
    const int64_t* entry_ptr;
    const Index* columns;
};

// Numbers all batches; `local` may be the columns' own memory. Memory beside the result: the new vertices once more, and the
// scratch of each thread.
template <class Index>
Sources<Index> number_columns(
    const SelectorView<Index>& Q, const StackedColumns<Index>& entries, bool include_targets, Index* local) {
    constexpr int64_t kEntryWork = 8, kBatchWork = 1 << 12;  // as elements of a loop
    const ThreadsFor threads(kEntryWork * (Q.num_rows + entries.entry_ptr[Q.num_batches]) + kBatchWork * Q.num_batches);
    std::vector<NewVertices<Index>> added(static_cast<size_t>(Q.num_batches));
    const int64_t batches_of_thread = (Q.num_batches - 1) / thread_limit() + 1;
    const auto make_scratch = [&] { return Scratch<Index>{{}, {}, Room<Index>(batches_of_thread)}; };
    parallel_chunks(Q.num_batches, 1, make_scratch, [&](auto& scratch, int64_t i, int64_t) {
        const int64_t begin = entries.entry_ptr[i], first = Q.batch_ptr[i];
        const int64_t num_targets = include_targets ? Q.batch_ptr[i + 1] - first : 0;
        const BatchColumns<Index> batch{
            Q.vertices + first, num_targets, entries.columns + begin, entries.entry_ptr[i + 1] - begin};
        added[static_cast<size_t>(i)] = compact_batch(batch, scratch, local + begin);
    });
    return stacked_sources(Q, include_targets, added);
}

template <class Index>
void require_entries(const In<int64_t>& batch_ptr, const In<int64_t>& entry_ptr, size_t num_entries) {
    require(entry_ptr.size() == batch_ptr.size(), "entry_ptr", "needs one element per batch and one more");
    require_pointers(entry_ptr, static_cast<int64_t>(num_entries), "entry_ptr");
}

// (src_ptr, src, local). Serves merge_targets too: there the columns of a batch are those drawn, each once.
template <class Index>
nb::tuple compact(
    const In<int64_t>& batch_ptr, const In<Index>& vertices, const In<int64_t>& entry_ptr, const In<Index>& columns,
    bool include_targets) {
    const SelectorView<Index> Q = batches_view<Index>(batch_ptr, vertices);
    require_entries<Index>(batch_ptr, entry_ptr, columns.size());
    Buffer<Index> local(static_cast<int64_t>(columns.size()));
    Sources<Index> sources;
    {
        nb::gil_scoped_release release;
        sources = number_columns<Index>(Q, {entry_ptr.data(), columns.data()}, include_targets, local.data());
    }
    return nb::make_tuple(
        to_numpy(std::move(sources.src_ptr)), to_numpy(std::move(sources.src)), to_numpy(std::move(local)));
}

// (src_ptr, src); `columns` become local. After an error they are neither.
template <class Index>
nb::tuple compact_in_place(
    const In<int64_t>& batch_ptr, const In<Index>& vertices, const In<int64_t>& entry_ptr, const InOut<Index>& columns,
    bool include_targets) {
    const SelectorView<Index> Q = batches_view<Index>(batch_ptr, vertices);
    require_entries<Index>(batch_ptr, entry_ptr, columns.size());
    Sources<Index> sources;
    {
        nb::gil_scoped_release release;
        sources = number_columns<Index>(Q, {entry_ptr.data(), columns.data()}, include_targets, columns.data());
    }
    return nb::make_tuple(to_numpy(std::move(sources.src_ptr)), to_numpy(std::move(sources.src)));
}

template <class Index>
void bind_for(nb::module_& m) {
    m.def("compact", &compact<Index>, nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(),
          nb::arg("entry_ptr").noconvert(), nb::arg("columns").noconvert(), nb::arg("include_targets"),
          "(src_ptr, src, local) of the columns of k batches.");
    m.def("compact_in_place", &compact_in_place<Index>, nb::arg("batch_ptr").noconvert(), nb::arg("vertices").noconvert(),
          nb::arg("entry_ptr").noconvert(), nb::arg("columns").noconvert(), nb::arg("include_targets"),
          "(src_ptr, src) of the columns of k batches, which are written over by their places in src.");
}

}  // namespace

void bind_compact(nb::module_& m) {
    bind_for<int32_t>(m);
    bind_for<int64_t>(m);
}

}  // namespace spsample
