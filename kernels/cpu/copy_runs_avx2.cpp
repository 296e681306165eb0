// copy_runs.h in AVX2, a cache line at a time (lanes_avx2.h says how such a file is compiled).
#include "copy_runs.h"

#include <algorithm>
#include <cstring>

#include "simd.h"

#if SPSAMPLE_X86

#include "lanes_avx2.h"

namespace spsample {
namespace {

constexpr int64_t kLine = 64;

// Not inlined: where the compiler knows a bound of the size it writes `rep movs`, which takes three times as long for short runs.
__attribute__((noinline)) void copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }

// Two moves of `Bytes` bytes, which may overlap, from both ends.
template <size_t Bytes>
inline void copy_ends(char* to, const char* from, int64_t bytes) {
    char first[Bytes], last[Bytes];
    std::memcpy(first, from, Bytes);
    std::memcpy(last, from + bytes - Bytes, Bytes);
    std::memcpy(to, first, Bytes);
    std::memcpy(to + bytes - Bytes, last, Bytes);
}

// Less than a line.
SPSAMPLE_AVX2_INLINE void copy_part(char* to, const char* from, int64_t bytes) {
    if (bytes >= 32) return copy_ends<32>(to, from, bytes);
    if (bytes >= 16) return copy_ends<16>(to, from, bytes);
    if (bytes >= 8) return copy_ends<8>(to, from, bytes);
    if (bytes >= 4) return copy_ends<4>(to, from, bytes);
    if (bytes >= 2) return copy_ends<2>(to, from, bytes);
    if (bytes == 1) *to = *from;
}

SPSAMPLE_AVX2 void stream_lines(void* to, const void* from, int64_t bytes) {
    char* out = static_cast<char*>(to);
    const char* in = static_cast<const char*>(from);
    const int64_t before = std::min(-reinterpret_cast<intptr_t>(out) & (kLine - 1), bytes);  // the first whole line
    copy_part(out, in, before);
    in += before, out += before, bytes -= before;
    for (; bytes >= kLine; bytes -= kLine, in += kLine, out += kLine) {
        const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
        const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + kLine / 2));
        _mm256_stream_si256(reinterpret_cast<__m256i*>(out), first);
        _mm256_stream_si256(reinterpret_cast<__m256i*>(out + kLine / 2), second);
    }
    copy_part(out, in, bytes);
}

void stream(void* to, const void* from, int64_t bytes) { bytes < kStreamedRun ? copy(to, from, bytes) : stream_lines(to, from, bytes); }

}  // namespace

const RunFunctions kRunsAvx2{copy, stream, stream_lines};

}  // namespace spsample

#endif
