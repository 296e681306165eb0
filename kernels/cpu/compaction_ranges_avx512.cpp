// compaction_ranges.h in AVX-512 (lanes_avx512.h says how such a file is compiled).
#include "compaction_ranges_loops.h"

#if SPSAMPLE_X86

#include "vertices_avx512.h"

namespace spsample {
namespace {

SPSAMPLE_AVX512_INLINE uint64_t nonempty_words(const uint64_t* bits) { return avx512::nonempty_words(bits, bits); }
SPSAMPLE_AVX512_INLINE uint64_t lowest_or_64(uint64_t bits) { return _tzcnt_u64(bits); }

// As below, for 32-bit ids: 16 vertices at a time, and then their places.
SPSAMPLE_AVX512_INLINE void take_group(const Group& group, uint64_t nonempty, NewSoFar<int32_t>& so_far) {
    int32_t* const begin = so_far.end;
    for (; nonempty != 0; nonempty &= nonempty - 1) {
        const int w = lowest_bit(nonempty);
        so_far.end = avx512::write_vertices(std::exchange(group.bits[w], 0), static_cast<int64_t>(group.first / 64) + w, so_far.end);
    }
    for (const int32_t* vertex = begin; vertex < so_far.end; ++vertex) {
        group.places[static_cast<uint64_t>(*vertex) - group.first] = so_far.place++;
    }
}

#define SPSAMPLE_RANGES SPSAMPLE_AVX512
#define SPSAMPLE_RANGES_INLINE SPSAMPLE_AVX512_INLINE
#include "compaction_ranges_number.h"
#undef SPSAMPLE_RANGES_INLINE
#undef SPSAMPLE_RANGES

}  // namespace

RangeOutcome number_by_ranges_avx512(const RangeBatch<int32_t>& batch, const RangeMemory& memory) { return number(batch, memory); }
RangeOutcome number_by_ranges_avx512(const RangeBatch<int64_t>& batch, const RangeMemory& memory) { return number(batch, memory); }

}  // namespace spsample

#endif
