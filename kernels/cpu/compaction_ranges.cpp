// The portable implementation of compaction_ranges.h, and the choice among instruction sets.
#include "compaction_ranges_loops.h"

namespace spsample {
namespace {

uint64_t nonempty_words(const uint64_t* bits) {
    uint64_t nonempty = 0;
    for (int w = 0; w < 64; ++w) nonempty |= static_cast<uint64_t>(bits[w] != 0) << w;
    return nonempty;
}

uint64_t lowest_or_64(uint64_t bits) { return bits != 0 ? static_cast<uint64_t>(lowest_bit(bits)) : 64; }

#define SPSAMPLE_RANGES
#define SPSAMPLE_RANGES_INLINE inline
#include "compaction_ranges_number.h"
#undef SPSAMPLE_RANGES_INLINE
#undef SPSAMPLE_RANGES

template <class Index>
NumberByRanges<Index> chosen() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return number_by_ranges_avx512;
    if (&instruction_set() == &kAvx2) return number_by_ranges_avx2;
#endif
    return number<Index>;
}

}  // namespace

template <>
NumberByRanges<int32_t> number_by_ranges<int32_t>() {
    return chosen<int32_t>();
}

template <>
NumberByRanges<int64_t> number_by_ranges<int64_t>() {
    return chosen<int64_t>();
}

}  // namespace spsample
