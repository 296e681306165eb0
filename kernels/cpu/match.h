// Which entries of a row of A lie in a set of columns, the row ascending: by a bit filter that reads every entry, or by searching
// the row for every column.
//
// As in simd.h, each function has up to three implementations with equal results; int64 columns are left to the portable one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "simd_ranks.h"
#include "spsample/key_filter.h"
#include "spsample/quantisation.h"

namespace spsample {

// log2 of a filter's bits: 64 to 128 for each key, so that 1 in 64 absent keys passes at most; at least 1024, at most 128 KB.
inline int filter_bits(int64_t keys) {
    return std::min(20, std::max(10, 6 + ceil_log2(static_cast<uint64_t>(keys))));
}

// Distinct columns, ascending, each with its place in the batch's src.
template <class Index>
struct SortedColumns {
    const Index* columns;
    const Index* places;
    int64_t count;
};

// A row's entries that were found: their offsets in the row, ascending, and the places of their columns.
template <class Index>
struct Matches {
    uint32_t* offsets;
    Index* places;
};

constexpr int kSharedBatches = 64;  // whose columns lie in one table: one bit each

// The src columns of up to 64 batches by vertex.
template <class Index>
struct SharedView {
    const uint64_t* batches;  // limit + 1: those whose src a vertex is in; the last one, of all vertices that are no column, has none
    const uint32_t* first;  // limit: where the vertex's places begin, one for each of its batches, by ascending bit
    uint64_t limit;
    const Index* places;
};

// An entry of a row whose column is in the src of a batch.
template <class Index>
struct SharedMatch {
    uint32_t bit;  // of the batch
    uint32_t offset;  // in the row
    Index place;
};

constexpr int64_t kMatchRoom = 16;  // elements that vector stores may write behind the last one

template <class Index>
struct MatchFunctions {
    // Offsets of the entries of row[0 .. count - 1] that pass the filter, ascending; returns how many. `offsets` has room for
    // count + kMatchRoom. The order of the entries does not matter. O(count).
    int64_t (*likely)(const KeyFilter& filter, const Index* row, int64_t count, uint32_t* offsets);

    // The same of the entries whose columns are in the src of a `wanted` batch.
    int64_t (*shared)(const SharedView<Index>& columns, uint64_t wanted, const Index* row, int64_t count, uint32_t* offsets);

    // The matches of the entries at `offsets`, one for each wanted batch, by ascending offset and bit; returns how many. `found` has room
    // for all and two more.
    int64_t (*shared_places)(
        const SharedView<Index>& columns, uint64_t wanted, const Index* row, const uint32_t* offsets, int64_t count, SharedMatch<Index>* found);

    // The entries of an ascending row (count <= 2^31; equal entries are all found) whose columns are in the set;
    // returns how many. `found` has room for count + kMatchRoom. O(columns log count).
    int64_t (*search)(const SortedColumns<Index>& set, const Index* row, int64_t count, const Matches<Index>& found);
};

// The functions of the instruction set in use (simd.h).
template <class Index>
const MatchFunctions<Index>& match_functions();

// --- implementations --------------------------------------------------------------------------------------------------

// The entries equal to set.columns[j], from `offset` on, where the first of them would be. Returns the new number of matches.
template <class Index>
inline int64_t add_equal(
    const SortedColumns<Index>& set, int64_t j, const Index* row, int64_t count, int64_t offset, const Matches<Index>& found,
    int64_t number) {
    for (; offset < count && row[offset] == set.columns[j]; ++offset, ++number) {
        found.offsets[number] = static_cast<uint32_t>(offset);
        found.places[number] = set.places[j];
    }
    return number;
}

template <class Index>
SPSAMPLE_INLINE int64_t shared_of(const SharedView<Index>& columns, uint64_t wanted, const Index* row, int64_t count, uint32_t* offsets) {
    int64_t number = 0;
    for (int64_t e = 0; e < count; ++e) {
        offsets[number] = static_cast<uint32_t>(e);
        number += (columns.batches[std::min(static_cast<uint64_t>(row[e]), columns.limit)] & wanted) != 0;
    }
    return number;
}

// Most entries have one or two matches: these take no branch.
template <class Index>
SPSAMPLE_INLINE int64_t shared_places_of(
    const SharedView<Index>& columns, uint64_t wanted, const Index* row, const uint32_t* offsets, int64_t count, SharedMatch<Index>* found) {
    int64_t number = 0;
    for (int64_t j = 0; j < count; ++j) {
        const size_t column = static_cast<size_t>(row[offsets[j]]);
        const uint64_t all = columns.batches[column];
        const Index* const places = columns.places + columns.first[column];
        const auto match_at = [&](uint64_t batches) {
            const uint64_t lowest = batches & -batches;
            return SharedMatch<Index>{static_cast<uint32_t>(lowest_bit(batches)), offsets[j], places[bits_set(all & (lowest - 1))]};
        };
        const uint64_t batches = all & wanted, others = batches & (batches - 1);
        uint64_t rest = others & (others - 1);
        found[number++] = match_at(batches);
        found[number] = match_at(others ? others : batches);
        number += others != 0;
        for (; rest != 0; rest &= rest - 1) found[number++] = match_at(rest);
    }
    return number;
}

extern const MatchFunctions<int32_t> kMatchAvx2;
extern const MatchFunctions<int32_t> kMatchAvx512;

}  // namespace spsample
