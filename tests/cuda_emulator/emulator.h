// What a .cu file sees of CUDA where the host's compiler compiles it: emulator.cpp runs its kernels. Test equipment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __shared__ static
#define __launch_bounds__(...)

namespace emulator {

// What the lanes of a warp brought to a warp function.
struct Lanes {
    uint64_t values[32];
};

// In emulator.cpp, of the thread that calls.
unsigned thread_index();
unsigned block_index();
unsigned block_size();
unsigned grid_size();
void wait_for_block(const char* function);
Lanes exchange(const char* function, unsigned mask, uint64_t value);
[[noreturn]] void fail(const char* function, const char* what);

template <class T>
uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= 8, "warp functions exchange at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
T value_of(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

struct ThreadIndex {
    struct X {
        operator unsigned() const { return thread_index(); }
    } x;
};
struct BlockIndex {
    struct X {
        operator unsigned() const { return block_index(); }
    } x;
};
struct BlockDim {
    struct X {
        operator unsigned() const { return block_size(); }
    } x;
};
struct GridDim {
    struct X {
        operator unsigned() const { return grid_size(); }
    } x;
};

template <class T, class Choose>
T shuffle(const char* function, unsigned mask, T value, Choose source) {
    const Lanes lanes = exchange(function, mask, bits_of(value));
    const int from = source(static_cast<int>(thread_index() % 32));
    if (from < 0) return value;
    if (((mask >> from) & 1) == 0) fail(function, "reads from a lane outside the mask");
    return value_of<T>(lanes.values[from]);
}

template <class T, class Join>
T reduce(const char* function, unsigned mask, T value, Join join) {
    const Lanes lanes = exchange(function, mask, bits_of(value));
    bool is_first = true;
    T result = value;
    for (int j = 0; j < 32; ++j) {
        if (((mask >> j) & 1) == 0) continue;
        const T other = value_of<T>(lanes.values[j]);
        result = is_first ? other : join(result, other);
        is_first = false;
    }
    return result;
}

template <class T, class Change>
T update(T* address, Change changed) {
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(address, &old, changed(old), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

}  // namespace emulator

static const emulator::ThreadIndex threadIdx;
static const emulator::BlockIndex blockIdx;
static const emulator::BlockDim blockDim;
static const emulator::GridDim gridDim;

inline void __syncthreads() { emulator::wait_for_block("__syncthreads"); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { emulator::exchange("__syncwarp", mask, 0); }

inline unsigned __ballot_sync(unsigned mask, bool predicate) {
    const emulator::Lanes lanes = emulator::exchange("__ballot_sync", mask, predicate);
    unsigned result = 0;
    for (int j = 0; j < 32; ++j) {
        if (((mask >> j) & 1) && lanes.values[j]) result |= 1u << j;
    }
    return result;
}
inline bool __any_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate) != 0; }
inline bool __all_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate) == mask; }

template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
    const uint64_t bits = emulator::bits_of(value);
    const emulator::Lanes lanes = emulator::exchange("__match_any_sync", mask, bits);
    unsigned result = 0;
    for (int j = 0; j < 32; ++j) {
        if (((mask >> j) & 1) && lanes.values[j] == bits) result |= 1u << j;
    }
    return result;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    return emulator::shuffle("__shfl_sync", mask, value, [=](int lane) { return lane / width * width + from % width; });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    return emulator::shuffle("__shfl_up_sync", mask, value, [=](int lane) {
        const int source = lane - static_cast<int>(delta);
        return source < lane / width * width ? -1 : source;
    });
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    return emulator::shuffle("__shfl_down_sync", mask, value, [=](int lane) {
        const int source = lane + static_cast<int>(delta);
        return source >= (lane / width + 1) * width ? -1 : source;
    });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
    return emulator::shuffle("__shfl_xor_sync", mask, value, [=](int lane) {
        const int source = lane ^ lanes;
        return source >= (lane / width + 1) * width ? -1 : source;
    });
}

template <class T>
T __reduce_add_sync(unsigned mask, T value) {
    static_assert(sizeof(T) == 4, "32-bit integers only");
    return emulator::reduce("__reduce_add_sync", mask, value, [](T a, T b) { return a + b; });
}
template <class T>
T __reduce_min_sync(unsigned mask, T value) {
    static_assert(sizeof(T) == 4, "32-bit integers only");
    return emulator::reduce("__reduce_min_sync", mask, value, [](T a, T b) { return std::min(a, b); });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
    static_assert(sizeof(T) == 4, "32-bit integers only");
    return emulator::reduce("__reduce_max_sync", mask, value, [](T a, T b) { return std::max(a, b); });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
    return emulator::reduce("__reduce_or_sync", mask, value, [](unsigned a, unsigned b) { return a | b; });
}

// Relaxed, as in CUDA: no other memory is ordered by an atomic. There is no __threadfence here: no kernel needs one, and
// ThreadSanitizer would have to be told what it orders.
template <class T>
T atomicAdd(T* address, T value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicOr(T* address, T value) {
    return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicMin(T* address, T value) {
    return emulator::update(address, [=](T old) { return std::min(old, value); });
}
template <class T>
T atomicMax(T* address, T value) {
    return emulator::update(address, [=](T old) { return std::max(old, value); });
}
template <class T>
T atomicExch(T* address, T value) {
    return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicCAS(T* address, T expected, T value) {
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

template <class T>
T __ldg(const T* address) {
    return *address;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
