// Numbering the columns of k batches: src vertices of each batch in their order, and its entries' columns as indices into them
// (docs/law.md, section 4).
//
// One batch at a time, each by one thread. The targets and the columns of a batch are sets of vertices. Where they stay in the cache,
// they are bit sets: reading the words in order gives the new vertices ascending, and the number of bits before a vertex (its rank)
// leads to its index in src. Where they would not, or the batch is small against its largest vertex id, a batch is numbered range by
// range of vertices. Where it is tiny, they are a hash table, and the new ones are sorted.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bindings.h"
#include "compaction_new_vertices.h"
#include "compaction_ranges.h"
#include "compaction_ranges_scratch.h"
#include "numbering.h"
#include "parallel.h"
#include "room.h"
#include "scratch.h"
#include "second_level.h"
#include "simd.h"

namespace spsample {

constexpr int64_t kWordsPerElement = 4;    // bit sets serve up to this number of words per target and entry of a batch
constexpr int64_t kFewWords = 1024;        // or up to this number
constexpr int64_t kFewTargets = 4096;      // their table stays in the cache
constexpr int64_t kEntriesPerTarget = 32;  // at least, where targets are few
constexpr int64_t kVerticesPerTarget = 64;  // ids, at least: entries then seldom lead to a target

// The vertices of a batch that have a number before its columns do.
template <class Index>
struct Targets {
    const Index* vertices;
    int64_t count;
};

// The largest of the ids and `floor`; negative ones are refused.
template <class Index>
int64_t largest_id(const Index* ids, int64_t count, int64_t floor, const char* name) {
    const IdRange<Index> range = instruction_set().sets<Index>().id_range(ids, count);
    require(range.smallest >= 0, name, "must not be negative");
    return std::max(floor, static_cast<int64_t>(range.largest));
}

// The columns of a batch's entries: vertices, which are written over by their places in src.
template <class Index>
struct Columns {
    Index* vertices;
    int64_t count;
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

// --- scratch ----------------------------------------------------------------------------------------------------------------

// Two empty bit sets and their ranks, n/2 bytes, and 4 bytes for each vertex of a batch. Empty again after every batch.
class BitScratch {
public:
    // Sets for vertices up to `largest`.
    BitSets sets(int64_t largest) {
        const int64_t num_words = (largest / 4096 + 1) * 64;
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

template <class Index>
struct HashScratch {
    Numbering<Index> vertices;
    std::vector<Numbered<Index>> order, spare;
    std::vector<Index> rank;  // of the vertices after the targets, by their number
};

// Memory of a table of targets.
template <class Index>
class TargetTable {
public:
    // The place of each of distinct targets. O(count).
    HashMap<Index, Index> of(const Index* targets, int64_t count) {
        const int64_t capacity = hash_capacity(count);
        HashMap<Index, Index> places{grown(keys_, capacity), grown(values_, capacity), capacity};
        places.clear();
        bool distinct = true;
        for (int64_t i = 0; i < count; ++i) {
            bool is_new = false;
            places.insert(targets[i], static_cast<Index>(i), &is_new);
            distinct &= is_new;
        }
        require(distinct, "vertices", "must be distinct within a batch");
        return places;
    }

private:
    std::vector<Index> keys_, values_;
};

// Memory of one thread, reused from batch to batch.
template <class Index>
struct BatchScratch {
    BitScratch bits;
    RangeScratch ranges;
    TargetTable<Index> table;
    HashScratch<Index> hash;
    Room<Index> room;
};

// --- one batch --------------------------------------------------------------------------------------------------------------

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

// The new vertices of a batch; its columns become places in src. O(largest id / 64 + targets + entries).
template <class Index>
NewVertices<Index> compact_by_bits(
    const Targets<Index>& targets, const Columns<Index>& columns, int64_t largest, BatchScratch<Index>& scratch) {
    const SetFunctions<Index>& functions = instruction_set().sets<Index>();
    const BitSets sets = scratch.bits.sets(largest);
    const bool distinct = add_distinct(targets.vertices, targets.count, sets.known);
    require(distinct, "vertices", "must be distinct within a batch");
    add_all(columns.vertices, columns.count, sets.found);
    const int64_t most = std::min(columns.count, largest + 1);
    uint32_t* places = scratch.bits.places(targets.count + most + kLanes);
    Index* vertices = scratch.room.reserve(most + kLanes);
    const int64_t count = functions.take_new(sets, vertices, static_cast<uint32_t>(targets.count), places);
    functions.place(sets.ranks, targets.vertices, targets.count, 0, places);
    const uint32_t* const by_rank = targets.count > 0 ? places : nullptr;
    functions.relabel(sets.ranks, by_rank, columns.vertices, columns.count, columns.vertices);
    return kept(count, scratch.room);
}

// As above, for few targets: `found` keeps the new vertices alone, and a table tells the places of the targets.
template <class Index>
NewVertices<Index> compact_among_few(
    const Targets<Index>& targets, const Columns<Index>& columns, int64_t largest, BatchScratch<Index>& scratch) {
    const NewSetFunctions<Index>& functions = new_set_functions<Index>();
    const BitSets sets = scratch.bits.sets(largest);
    const HashMap<Index, Index> places = scratch.table.of(targets.vertices, targets.count);
    add_all(columns.vertices, columns.count, sets.found);
    for (int64_t i = 0; i < targets.count; ++i) {
        const uint64_t vertex = static_cast<uint64_t>(targets.vertices[i]);
        sets.found[vertex >> 6] &= ~(uint64_t(1) << (vertex & 63));
        sets.ranks[vertex >> 5].bits = 0;  // where it is the word's only vertex
    }
    Index* vertices = scratch.room.reserve(std::min(columns.count, largest + 1) + kLanes);
    const int64_t count = functions.take({sets.found, sets.ranks, sets.num_words}, vertices, static_cast<uint32_t>(targets.count));
    functions.relabel(sets.ranks, places, columns.vertices, columns.count, columns.vertices);
    return kept(count, scratch.room);
}

// As above. O(targets + entries + sort of the new vertices).
template <class Index>
NewVertices<Index> compact_by_hash(
    const Targets<Index>& targets, const Columns<Index>& columns, BatchScratch<Index>& scratch) {
    HashScratch<Index>& hash = scratch.hash;
    Numbering<Index>& vertices = hash.vertices;
    vertices.reset(targets.count + columns.count / 2);
    for (int64_t r = 0; r < targets.count; ++r) vertices.number(targets.vertices[r]);
    require(vertices.size() == targets.count, "vertices", "must be distinct within a batch");
    Index* const local = columns.vertices;
    for (int64_t e = 0; e < columns.count; ++e) local[e] = vertices.number(columns.vertices[e]);
    ascending(vertices, targets.count, hash.order, hash.spare);
    const int64_t count = static_cast<int64_t>(hash.order.size());
    scratch.room.reserve(count);
    const NewVertices<Index> added = kept(count, scratch.room);
    hash.rank.resize(hash.order.size());
    for (int64_t i = 0; i < added.count; ++i) {
        const Numbered<Index>& vertex = hash.order[static_cast<size_t>(i)];
        added.vertices[i] = vertex.key;
        hash.rank[static_cast<size_t>(vertex.number - targets.count)] = static_cast<Index>(targets.count + i);
    }
    for (int64_t e = 0; e < columns.count; ++e) {
        if (local[e] >= targets.count) local[e] = hash.rank[static_cast<size_t>(local[e] - targets.count)];
    }
    return added;
}

// As above, range by range. O(targets + entries + largest id / 4096).
template <class Index>
NewVertices<Index> compact_by_ranges(
    const Targets<Index>& targets, const Columns<Index>& columns, const Ranges& ranges, BatchScratch<Index>& scratch) {
    const RangeMemory memory = scratch.ranges.memory(ranges, targets.count, columns.count);
    Index* const vertices = scratch.room.reserve(columns.count + kLanes);
    const RangeBatch<Index> batch{ranges, targets.vertices, targets.count, columns.vertices, columns.count, vertices};
    const RangeOutcome outcome = number_by_ranges<Index>()(batch, memory);
    require(outcome.distinct, "vertices", "must be distinct within a batch");
    return kept(outcome.num_new, scratch.room);
}

// Whether a bit set of vertices up to `largest` takes half of the second-level cache at most.
inline bool stays_near(int64_t largest) {
    static const int64_t cache = second_level_cache();
    return largest / 8 <= cache / 2;
}

// By what suits the batch.
template <class Index>
NewVertices<Index> compact_batch(
    const Targets<Index>& targets, const Columns<Index>& columns, BatchScratch<Index>& scratch) {
    int64_t largest = largest_id(targets.vertices, targets.count, 0, "vertices");
    largest = largest_id(columns.vertices, columns.count, largest, "columns");
    const int64_t elements = targets.count + columns.count;
    if (elements >= int64_t(1) << 32) return compact_by_hash(targets, columns, scratch);
    const bool few_words = largest / 64 <= std::max(kFewWords, kWordsPerElement * elements);
    if (!few_words || !stays_near(largest)) {
        const Ranges ranges = ranges_for(largest, elements);
        return ranges.count > 0 ? compact_by_ranges(targets, columns, ranges, scratch) : compact_by_hash(targets, columns, scratch);
    }
    const int64_t few = std::min({kFewTargets, columns.count / kEntriesPerTarget, (largest + 1) / kVerticesPerTarget});
    if (targets.count <= few) return compact_among_few(targets, columns, largest, scratch);
    return compact_by_bits(targets, columns, largest, scratch);
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

// Numbers all batches, whose vertices in Q are their targets: `columns_of(i)`, called by the thread that numbers batch i, gives its
// columns. Memory beside the result: the new vertices once more, and the scratch of each thread.
template <class Index, class ColumnsOf>
Sources<Index> number_batches(const SelectorView<Index>& Q, bool include_targets, ColumnsOf&& columns_of) {
    std::vector<NewVertices<Index>> added(static_cast<size_t>(Q.num_batches));
    const int64_t batches_of_thread = (Q.num_batches - 1) / thread_limit() + 1;
    const auto make_scratch = [&] { return BatchScratch<Index>{{}, {}, {}, {}, Room<Index>(batches_of_thread)}; };
    parallel_chunks(Q.num_batches, 1, make_scratch, [&](auto& scratch, int64_t i, int64_t) {
        const int64_t first = Q.batch_ptr[i];
        const Targets<Index> targets{Q.vertices + first, include_targets ? Q.batch_ptr[i + 1] - first : 0};
        added[static_cast<size_t>(i)] = compact_batch<Index>(targets, columns_of(i), scratch);
    });
    return stacked_sources(Q, include_targets, added);
}

// Numbers columns, entry_ptr[i + 1] - entry_ptr[i] of batch i, which begin at begin(i).
template <class Index, class Begin>
Sources<Index> number_columns_at(const SelectorView<Index>& Q, const int64_t* entry_ptr, Begin&& begin, Index* columns, bool include_targets) {
    constexpr int64_t kEntryWork = 8, kBatchWork = 1 << 12;  // as elements of a loop
    const ThreadsFor threads(kEntryWork * (Q.num_rows + entry_ptr[Q.num_batches]) + kBatchWork * Q.num_batches);
    const auto columns_of = [&](int64_t i) { return Columns<Index>{columns + begin(i), entry_ptr[i + 1] - entry_ptr[i]}; };
    return number_batches(Q, include_targets, columns_of);
}

// Numbers columns that lie stacked, batch i's from entry_ptr[i] on.
template <class Index>
Sources<Index> number_columns(const SelectorView<Index>& Q, const int64_t* entry_ptr, Index* columns, bool include_targets) {
    return number_columns_at(Q, entry_ptr, [&](int64_t i) { return entry_ptr[i]; }, columns, include_targets);
}

}  // namespace spsample
