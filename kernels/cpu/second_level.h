// The size of a core's second-level cache.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(__unix__)
#include <unistd.h>
#endif

namespace spsample {

// Bytes, as the system says; 1 MiB where it does not say, or nothing between 512 KiB and 4 MiB.
inline int64_t second_level_cache() {
    constexpr int64_t kUsual = 1 << 20;
    int64_t cache = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return std::clamp<int64_t>(cache > 0 ? cache : kUsual, 512 << 10, 4 << 20);
}

}  // namespace spsample
