// The portable implementation of cached_rows.h, and the choice among instruction sets.
#include "cached_rows.h"

#include "simd.h"

namespace spsample {
namespace {

template <class Index>
int64_t find(const CachedRows& rows, const Index* ids, int64_t count, intptr_t* addresses) {
    int64_t hits = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (i + kPlacesAhead < count) SPSAMPLE_PREFETCH(rows.words + static_cast<uint64_t>(ids[i + kPlacesAhead]) / 32);
        const KeptPlace found(rows.words, static_cast<uint64_t>(ids[i]));
        addresses[i] = address_of_cached_row(rows, static_cast<int64_t>(ids[i]), found.place, found.is_kept);
        hits += found.is_kept;
    }
    return hits;
}

const CachedRowFinders& finders() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return kCachedRowsAvx512;
    if (&instruction_set() == &kAvx2) return kCachedRowsAvx2;
#endif
    static constexpr CachedRowFinders kPortable{find<int32_t>, find<int64_t>};
    return kPortable;
}

}  // namespace

template <>
FindCachedRows<int32_t> cached_row_finder() {
    return finders().narrow;
}

template <>
FindCachedRows<int64_t> cached_row_finder() {
    return finders().wide;
}

}  // namespace spsample
