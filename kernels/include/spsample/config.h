// Macros and integer types shared by host (C++17) and device (nvcc, NVRTC) code.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstddef>
#include <cstdint>
#else
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SPSAMPLE_HD __host__ __device__
#else
#define SPSAMPLE_HD
#endif

// Hints to load the cache line at `address`: for reading, for writing, and to the second-level cache only. They do nothing where the
// compiler knows no such hint.
#if (defined(__GNUC__) || defined(__clang__)) && !defined(__CUDA_ARCH__)
#define SPSAMPLE_PREFETCH(address) __builtin_prefetch(address)
#define SPSAMPLE_PREFETCH_WRITE(address) __builtin_prefetch(address, 1)
#define SPSAMPLE_PREFETCH_NEAR(address) __builtin_prefetch(address, 0, 2)
#else
#define SPSAMPLE_PREFETCH(address) ((void)0)
#define SPSAMPLE_PREFETCH_WRITE(address) ((void)0)
#define SPSAMPLE_PREFETCH_NEAR(address) ((void)0)
#endif
