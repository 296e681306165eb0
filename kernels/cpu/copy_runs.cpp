// The portable implementation of copy_runs.h, and the choice among instruction sets.
#include "copy_runs.h"

#include <cstring>

#include "simd.h"

#if SPSAMPLE_X86
#include <immintrin.h>
#endif

namespace spsample {
namespace {

void copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }

constexpr RunFunctions kPortable{copy, copy, copy};

}  // namespace

const RunFunctions& run_functions() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return kRunsAvx512;
    if (&instruction_set() == &kAvx2) return kRunsAvx2;
#endif
    return kPortable;
}

void fence_streams() {
#if SPSAMPLE_X86
    _mm_sfence();
#endif
}

}  // namespace spsample
