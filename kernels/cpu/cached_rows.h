// Where the rows of vertices lie: among those kept near (feature_places.h), or among all.
//
// As in simd.h, there are up to three implementations with equal results.
#pragma once

#include <cstdint>

#include "feature_places.h"

namespace spsample {

struct CachedRows {
    const uint64_t* words;
    intptr_t kept, all;  // addresses of arrays of rows
    int64_t row_bytes;
};

// Writes the address of the row of each id, which are in range; returns how many of them are kept. O(count).
template <class Index>
using FindCachedRows = int64_t (*)(const CachedRows& rows, const Index* ids, int64_t count, intptr_t* addresses);

// That of the instruction set in use.
template <class Index>
FindCachedRows<Index> cached_row_finder();

// --- implementations --------------------------------------------------------------------------------------------------

struct CachedRowFinders {
    FindCachedRows<int32_t> narrow;
    FindCachedRows<int64_t> wide;
};

extern const CachedRowFinders kCachedRowsAvx2, kCachedRowsAvx512;

// The address of one row: is_kept is 0 or 1, and which it is cannot be foreseen.
inline intptr_t address_of_cached_row(const CachedRows& rows, int64_t vertex, int64_t place, int64_t is_kept) {
    const intptr_t near = rows.kept + place * rows.row_bytes, far = rows.all + vertex * rows.row_bytes;
    return far ^ ((near ^ far) & -static_cast<intptr_t>(is_kept));
}

}  // namespace spsample
