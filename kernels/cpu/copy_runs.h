// Copying many runs of bytes, most of them short (rows of A), each with results equal to memcpy's.
//
// memcpy pays for its choice among sizes with each call, and reads the lines that it is about to write: short runs are one masked
// move, long runs can be written past the caches. As in simd.h, an implementation is chosen by the instruction set in use.
#pragma once

#include <cstdint>

namespace spsample {

constexpr int64_t kStreamedRun = 1 << 10;    // bytes of the shortest run that is written past the caches
constexpr int64_t kStreamedAll = 8 << 20;    // bytes of a whole result for which that pays: it would not stay in a cache

using CopyRun = void (*)(void* to, const void* from, int64_t bytes);

struct RunFunctions {
    CopyRun copy;

    // The same for what is not read again soon: whole lines of long runs go past the caches. Others may read what was written
    // after fence_streams().
    CopyRun stream;

    // The same of runs of any length: whole lines of short ones, too.
    CopyRun stream_lines;
};

// Those of the instruction set in use.
const RunFunctions& run_functions();

// What copies the runs of a result of a given number of bytes.
inline CopyRun copy_into(int64_t bytes) { return bytes >= kStreamedAll ? run_functions().stream : run_functions().copy; }

// Orders the lines that this thread wrote past the caches before all that it writes from here on.
void fence_streams();

extern const RunFunctions kRunsAvx2;
extern const RunFunctions kRunsAvx512;

}  // namespace spsample
