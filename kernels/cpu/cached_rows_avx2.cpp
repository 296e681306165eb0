// cached_rows.h with the instructions of AVX2's processors that count bits: one id at a time, for gathers of words do not pay there.
#include "cached_rows.h"

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

template <class Index>
SPSAMPLE_AVX2 int64_t find(const CachedRows& rows, const Index* ids, int64_t count, intptr_t* addresses) {
    int64_t hits = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (i + kPlacesAhead < count) SPSAMPLE_PREFETCH(rows.words + static_cast<uint64_t>(ids[i + kPlacesAhead]) / 32);
        const uint64_t vertex = static_cast<uint64_t>(ids[i]), word = rows.words[vertex / 32];
        const uint32_t kept = static_cast<uint32_t>(word), bit = vertex % 32;
        const int64_t place = static_cast<int64_t>(word >> 32) + _mm_popcnt_u32(_bzhi_u32(kept, bit)), is_kept = (kept >> bit) & 1;
        addresses[i] = address_of_cached_row(rows, static_cast<int64_t>(vertex), place, is_kept);
        hits += is_kept;
    }
    return hits;
}

}  // namespace

const CachedRowFinders kCachedRowsAvx2{find<int32_t>, find<int64_t>};

}  // namespace spsample

#endif
