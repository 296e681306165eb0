// copy_runs.h in AVX-512, a cache line at a time (lanes_avx512.h says how such a file is compiled).
#include "copy_runs.h"

#include <algorithm>

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx512.h"

namespace spsample {
namespace {

constexpr int64_t kLine = 64;

// Less than a line.
SPSAMPLE_AVX512_INLINE void copy_part(char* to, const char* from, int64_t bytes) {
    const __mmask64 part = _bzhi_u64(~uint64_t(0), static_cast<unsigned>(bytes));
    if (part) _mm512_mask_storeu_epi8(to, part, _mm512_maskz_loadu_epi8(part, from));
}

SPSAMPLE_AVX512 void copy(void* to, const void* from, int64_t bytes) {
    char* out = static_cast<char*>(to);
    const char* in = static_cast<const char*>(from);
    for (; bytes >= kLine; bytes -= kLine, in += kLine, out += kLine) _mm512_storeu_si512(out, _mm512_loadu_si512(in));
    copy_part(out, in, bytes);
}

SPSAMPLE_AVX512 void stream_lines(void* to, const void* from, int64_t bytes) {
    char* out = static_cast<char*>(to);
    const char* in = static_cast<const char*>(from);
    const int64_t before = std::min(-reinterpret_cast<intptr_t>(out) & (kLine - 1), bytes);  // the first whole line
    copy_part(out, in, before);
    in += before, out += before, bytes -= before;
    for (; bytes >= kLine; bytes -= kLine, in += kLine, out += kLine) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(out), _mm512_loadu_si512(in));
    }
    copy_part(out, in, bytes);
}

void stream(void* to, const void* from, int64_t bytes) { bytes < kStreamedRun ? copy(to, from, bytes) : stream_lines(to, from, bytes); }

}  // namespace

const RunFunctions kRunsAvx512{copy, stream, stream_lines};

}  // namespace spsample

#endif
