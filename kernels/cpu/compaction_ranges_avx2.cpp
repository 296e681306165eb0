// compaction_ranges.h with AVX2 and the bit instructions that come with it (lanes_avx2.h says how such a file is compiled).
#include "compaction_ranges_loops.h"

#if SPSAMPLE_X86

#include "words_avx2.h"

namespace spsample {
namespace {

SPSAMPLE_AVX2_INLINE uint64_t nonempty_words(const uint64_t* bits) { return avx2::nonempty_words(bits, bits); }
SPSAMPLE_AVX2_INLINE uint64_t lowest_or_64(uint64_t bits) { return _tzcnt_u64(bits); }

#define SPSAMPLE_RANGES SPSAMPLE_AVX2
#define SPSAMPLE_RANGES_INLINE SPSAMPLE_AVX2_INLINE
#include "compaction_ranges_number.h"
#undef SPSAMPLE_RANGES_INLINE
#undef SPSAMPLE_RANGES

}  // namespace

RangeOutcome number_by_ranges_avx2(const RangeBatch<int32_t>& batch, const RangeMemory& memory) { return number(batch, memory); }
RangeOutcome number_by_ranges_avx2(const RangeBatch<int64_t>& batch, const RangeMemory& memory) { return number(batch, memory); }

}  // namespace spsample

#endif
