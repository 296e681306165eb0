// Runs a CUDA kernel on the host, one block after the other, every thread of a block as a fiber. Test equipment.
//
// A .cu file is compiled by the host's compiler with this header in front of it. A fiber runs until it meets a barrier or a warp
// function, and goes on once all threads that take part are there; which fiber runs first, and which warps run ahead of others, changes
// from launch to launch, so a result that depends on the order of threads does not stay the same. What a GPU leaves undefined is an
// error here: threads of one block or warp that wait at different places, a mask without its caller, a lane of a mask that has ended.
#pragma once

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __shared__ static
#define __launch_bounds__(...)

namespace emulator {

struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
};

struct Wait {
    enum Kind { nothing, block, warp } kind = nothing;
    const char* function = "";
    unsigned mask = 0;
    uint64_t value = 0;
};

// A fiber runs one thread of a block after the other. It is begun once by its context; from then on the cheaper _longjmp leads back.
struct Thread {
    ucontext_t context;
    jmp_buf place;
    void* stack = nullptr;
    bool begun = false;
    bool done = false;
    Wait wait;
    uint64_t slots[32];  // what the lanes of the warp brought to the last warp function
};

constexpr size_t kStack = 128 * 1024;
constexpr int kArguments = 40;

struct State {
    Dim3 grid, block, block_index;
    std::vector<std::unique_ptr<Thread>> threads;
    size_t running = 0;
    jmp_buf scheduler;
    void* kernel = nullptr;
    uint64_t arguments[kArguments] = {};
    std::mt19937_64 order;
    bool failed = false;  // a fiber asks for the launch to end
    std::string error;
};

inline State& state() {
    static State one;
    return one;
}

inline Thread& self() { return *state().threads[state().running]; }

inline void to_scheduler() {
    if (_setjmp(self().place) == 0) _longjmp(state().scheduler, 1);
}

[[noreturn]] inline void fail(const std::string& message) {
    state().failed = true;
    state().error = message;
    to_scheduler();
    std::abort();
}

inline void wait_for(Wait::Kind kind, const char* function, unsigned mask, uint64_t value) {
    self().wait = {kind, function, mask, value};
    to_scheduler();
}

inline unsigned lane() { return static_cast<unsigned>(state().running % 32); }

inline const uint64_t* exchange(const char* function, unsigned mask, uint64_t value) {
    if (((mask >> lane()) & 1) == 0) fail(std::string(function) + ": the mask lacks the calling lane");
    wait_for(Wait::warp, function, mask, value);
    return self().slots;
}

inline void run_kernel() {
    using Kernel = void (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                            uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                            uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                            uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    while (true) {
        const uint64_t* a = state().arguments;
        reinterpret_cast<Kernel>(state().kernel)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
                                             a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27],
                                             a[28], a[29], a[30], a[31], a[32], a[33], a[34], a[35], a[36], a[37], a[38], a[39]);
        self().done = true;
        to_scheduler();
    }
}

// Lets the threads of a warp go on whose mask is complete. Returns how many.
inline size_t release_warps() {
    State& s = state();
    size_t released = 0;
    for (size_t first = 0; first < s.block.x; first += 32) {
        const size_t lanes = std::min<size_t>(32, s.block.x - first);
        for (size_t i = 0; i < lanes; ++i) {
            Thread& one = *s.threads[first + i];
            if (one.done || one.wait.kind != Wait::warp) continue;
            bool complete = true;
            for (size_t j = 0; j < 32 && complete; ++j) {
                if (((one.wait.mask >> j) & 1) == 0) continue;
                const bool there = j < lanes && !s.threads[first + j]->done;
                const Wait* other = there ? &s.threads[first + j]->wait : nullptr;
                complete = there && other->kind == Wait::warp && other->mask == one.wait.mask &&
                           std::strcmp(other->function, one.wait.function) == 0;
            }
            if (!complete) continue;
            const unsigned mask = one.wait.mask;
            uint64_t values[32] = {};
            for (size_t j = 0; j < lanes; ++j) {
                if ((mask >> j) & 1) values[j] = s.threads[first + j]->wait.value;
            }
            for (size_t j = 0; j < lanes; ++j) {
                if (((mask >> j) & 1) == 0) continue;
                std::memcpy(s.threads[first + j]->slots, values, sizeof values);
                s.threads[first + j]->wait = {};
                ++released;
            }
        }
    }
    return released;
}

// Lets all threads go on where each that has not ended waits for its block.
inline size_t release_block() {
    State& s = state();
    size_t waiting = 0, alive = 0;
    for (size_t i = 0; i < s.block.x; ++i) {
        alive += !s.threads[i]->done;
        waiting += !s.threads[i]->done && s.threads[i]->wait.kind == Wait::block;
    }
    if (waiting == 0 || waiting != alive) return 0;
    for (size_t i = 0; i < s.block.x; ++i) s.threads[i]->wait = {};
    return waiting;
}

inline std::string stuck() {
    std::map<std::string, int> places;
    for (size_t i = 0; i < state().block.x; ++i) {
        if (!state().threads[i]->done) ++places[state().threads[i]->wait.function];
    }
    std::string text = "threads wait at different places for ever:";
    for (auto& [function, count] : places) text += " " + std::to_string(count) + " at " + function;
    return text;
}

inline void resume(Thread& thread) {
    if (_setjmp(state().scheduler) != 0) return;
    if (thread.begun) _longjmp(thread.place, 1);
    thread.begun = true;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack;
    thread.context.uc_stack.ss_size = kStack;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, run_kernel, 0);
    setcontext(&thread.context);
}

inline bool run_block() {
    State& s = state();
    const size_t count = s.block.x;
    while (s.threads.size() < count) s.threads.push_back(std::make_unique<Thread>());
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) {
        Thread& thread = *s.threads[i];
        if (!thread.stack) {
            thread.stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        thread.done = false;
        thread.wait = {};
        order[i] = i;
    }
    while (true) {
        std::shuffle(order.begin(), order.end(), s.order);
        size_t ran = 0, alive = 0;
        const uint64_t held = s.order() & s.order();  // a quarter of the warps stays behind the others
        bool holds = false;
        for (const size_t i : order) {
            Thread& thread = *s.threads[i];
            if (thread.done || thread.wait.kind != Wait::nothing) continue;
            if ((held >> (i / 32)) & 1) {
                holds = true;
                continue;
            }
            s.running = i;
            resume(thread);
            if (s.failed) return false;
            ++ran;
        }
        for (size_t i = 0; i < count; ++i) alive += !s.threads[i]->done;
        if (alive == 0) return true;
        if (release_warps() + release_block() == 0 && ran == 0 && !holds) {
            s.error = stuck();
            return false;
        }
    }
}

// --- what kernels call ----------------------------------------------------------------------------------------------------

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
        operator unsigned() const { return static_cast<unsigned>(state().running); }
    } x;
};
struct BlockIndex {
    struct X {
        operator unsigned() const { return state().block_index.x; }
    } x;
};
struct BlockDim {
    struct X {
        operator unsigned() const { return state().block.x; }
    } x;
};
struct GridDim {
    struct X {
        operator unsigned() const { return state().grid.x; }
    } x;
};

template <class T, class Choose>
T shuffle(const char* function, unsigned mask, T value, Choose source) {
    const uint64_t* slots = exchange(function, mask, bits_of(value));
    const int from = source(static_cast<int>(lane()));
    if (from < 0) return value;
    if (((mask >> from) & 1) == 0) fail(std::string(function) + ": reads from a lane outside the mask");
    return value_of<T>(slots[from]);
}

template <class T, class Join>
T reduce(const char* function, unsigned mask, T value, Join join) {
    const uint64_t* slots = exchange(function, mask, bits_of(value));
    bool is_first = true;
    T result = value;
    for (int j = 0; j < 32; ++j) {
        if (((mask >> j) & 1) == 0) continue;
        const T other = value_of<T>(slots[j]);
        result = is_first ? other : join(result, other);
        is_first = false;
    }
    return result;
}

}  // namespace emulator

static const emulator::ThreadIndex threadIdx;
static const emulator::BlockIndex blockIdx;
static const emulator::BlockDim blockDim;
static const emulator::GridDim gridDim;

inline void __syncthreads() { emulator::wait_for(emulator::Wait::block, "__syncthreads", 0, 0); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { emulator::exchange("__syncwarp", mask, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}

inline unsigned __ballot_sync(unsigned mask, bool predicate) {
    const uint64_t* slots = emulator::exchange("__ballot_sync", mask, predicate);
    unsigned result = 0;
    for (int j = 0; j < 32; ++j) {
        if (((mask >> j) & 1) && slots[j]) result |= 1u << j;
    }
    return result;
}
inline bool __any_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate) != 0; }
inline bool __all_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate) == mask; }

template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
    const uint64_t bits = emulator::bits_of(value);
    const uint64_t* slots = emulator::exchange("__match_any_sync", mask, bits);
    unsigned result = 0;
    for (int j = 0; j < 32; ++j) {
        if (((mask >> j) & 1) && slots[j] == bits) result |= 1u << j;
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

template <class T>
T atomicAdd(T* address, T value) {
    const T old = *address;
    *address = static_cast<T>(old + value);
    return old;
}
template <class T>
T atomicOr(T* address, T value) {
    const T old = *address;
    *address = old | value;
    return old;
}
template <class T>
T atomicMin(T* address, T value) {
    const T old = *address;
    *address = std::min(old, value);
    return old;
}
template <class T>
T atomicMax(T* address, T value) {
    const T old = *address;
    *address = std::max(old, value);
    return old;
}
template <class T>
T atomicExch(T* address, T value) {
    const T old = *address;
    *address = value;
    return old;
}
template <class T>
T atomicCAS(T* address, T expected, T value) {
    const T old = *address;
    if (old == expected) *address = value;
    return old;
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

// Runs a kernel of `arguments` (8 bytes each); returns null, or what was wrong.
extern "C" __attribute__((visibility("default"), used)) const char* emulator_launch(
    void* kernel, uint64_t grid, uint64_t block, const uint64_t* arguments, uint64_t count, uint64_t order) {
    emulator::State& s = emulator::state();
    s.kernel = kernel;
    s.grid.x = static_cast<unsigned>(grid);
    s.block.x = static_cast<unsigned>(block);
    if (count > emulator::kArguments) return "too many arguments";
    std::copy(arguments, arguments + count, s.arguments);
    s.order.seed(order);
    s.failed = false;
    s.error.clear();
    const bool backwards = s.order() % 2 != 0;  // blocks may run in any order
    for (uint64_t i = 0; i < grid; ++i) {
        s.block_index.x = static_cast<unsigned>(backwards ? grid - 1 - i : i);
        if (!emulator::run_block()) {
            for (auto& thread : s.threads) thread->begun = false;  // left in the middle of the kernel
            return s.error.c_str();
        }
    }
    return nullptr;
}
