// Runs a CUDA kernel on the host, one block after the other, every thread of a block as a fiber. Test equipment.
//
// A .cu file is compiled by the host's compiler with emulator.h in front of it. A fiber runs until it meets a barrier or a warp
// function, and goes on once all threads that take part are there; which fiber runs first, and which warps run ahead of others, changes
// from launch to launch, so a result that depends on the order of threads does not stay the same. What a GPU leaves undefined is an
// error here: threads of one block or warp that wait at different places, a mask without its caller, a lane of a mask that has ended.
// Compiled with EMULATOR_RACES, and the kernels by -fsanitize=thread, ThreadSanitizer sees what two threads do to one place of memory.
#include "emulator.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

// --- what ThreadSanitizer is told -----------------------------------------------------------------------------------------
//
// To it every thread of every block is a fiber of its own, and so is who launches. Nothing orders what fibers do but calls of `order`:
// a launch follows what was before it and precedes what is after it; threads follow each other where they meet at __syncthreads, or
// at __syncwarp. Votes, shuffles and atomics order nothing. This file itself is not compiled with -fsanitize=thread: the emulator's
// own memory is not watched.
#if defined(EMULATOR_RACES)

extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_set_fiber_name(void* fiber, const char* name);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber();
void __tsan_acquire(void* token);
void __tsan_release(void* token);
uint8_t __tsan_atomic8_fetch_add(volatile void*, uint8_t, int order);
uint16_t __tsan_atomic16_fetch_add(volatile void*, uint16_t, int order);
uint32_t __tsan_atomic32_fetch_add(volatile void*, uint32_t, int order);
uint64_t __tsan_atomic64_fetch_add(volatile void*, uint64_t, int order);
uint8_t __tsan_atomic8_load(const volatile void*, int order);
uint16_t __tsan_atomic16_load(const volatile void*, int order);
uint32_t __tsan_atomic32_load(const volatile void*, int order);
uint64_t __tsan_atomic64_load(const volatile void*, int order);

// Called before a volatile access (--param=tsan-distinguish-volatile=1): to a GPU it is a relaxed atomic one.
void __tsan_volatile_read1(void* address) { __tsan_atomic8_load(address, __ATOMIC_RELAXED); }
void __tsan_volatile_read2(void* address) { __tsan_atomic16_load(address, __ATOMIC_RELAXED); }
void __tsan_volatile_read4(void* address) { __tsan_atomic32_load(address, __ATOMIC_RELAXED); }
void __tsan_volatile_read8(void* address) { __tsan_atomic64_load(address, __ATOMIC_RELAXED); }
void __tsan_volatile_write1(void* address) { __tsan_atomic8_fetch_add(address, 0, __ATOMIC_RELAXED); }
void __tsan_volatile_write2(void* address) { __tsan_atomic16_fetch_add(address, 0, __ATOMIC_RELAXED); }
void __tsan_volatile_write4(void* address) { __tsan_atomic32_fetch_add(address, 0, __ATOMIC_RELAXED); }
void __tsan_volatile_write8(void* address) { __tsan_atomic64_fetch_add(address, 0, __ATOMIC_RELAXED); }
}

using Fiber = void*;

static Fiber new_fiber(const std::string& name) {
    const Fiber fiber = __tsan_create_fiber(0);
    __tsan_set_fiber_name(fiber, name.c_str());
    return fiber;
}
static void end_fiber(Fiber fiber) { __tsan_destroy_fiber(fiber); }
static Fiber current_fiber() { return __tsan_get_current_fiber(); }

// What is done from here on is done by this fiber. It is not ordered by that.
static void become(Fiber fiber) {
    constexpr unsigned kNoOrder = 1;
    __tsan_switch_to_fiber(fiber, kNoOrder);
}

// What the second fibers do from here on comes after all that the first did.
static void order(const std::vector<Fiber>& first, const std::vector<Fiber>& second) {
    const Fiber caller = current_fiber();
    const auto token = std::make_unique<char>();  // a new one: an old one would hand on what other fibers did
    for (const Fiber one : first) {
        become(one);
        __tsan_release(token.get());
    }
    for (const Fiber one : second) {
        become(one);
        __tsan_acquire(token.get());
    }
    become(caller);
}

#else

struct Fiber {};
static Fiber new_fiber(const std::string&) { return {}; }
static void end_fiber(Fiber) {}
static Fiber current_fiber() { return {}; }
static void become(Fiber) {}
static void order(const std::vector<Fiber>&, const std::vector<Fiber>&) {}

#endif

// --- threads and blocks ---------------------------------------------------------------------------------------------------

namespace {

constexpr size_t kStack = 128 * 1024;
constexpr int kArguments = 40;

struct Wait {
    enum Kind { nothing, block, warp } kind = nothing;
    const char* function = "";
    unsigned mask = 0;
    uint64_t value = 0;
};

// Where to go on, as __builtin_setjmp keeps it. The library's setjmp would not do: ThreadSanitizer takes it for one of this thread.
using Place = void* [5];

// Runs one thread after the other. It is begun once by its context; from then on the cheaper __builtin_longjmp leads back.
struct Thread {
    ucontext_t context;
    Place place;
    void* const stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const Fiber fiber;
    bool begun = false;
    bool done = false;
    Wait wait;
    emulator::Lanes lanes;  // what the last warp function gave

    explicit Thread(const std::string& name) : fiber(new_fiber(name)) {}
    Thread(const Thread&) = delete;
    ~Thread() {
        munmap(stack, kStack);
        end_fiber(fiber);
    }
};

using Block = std::vector<std::unique_ptr<Thread>>;

// A launch, of which one block runs at a time.
struct State {
    unsigned grid = 0, block = 0;
    const uint64_t* arguments = nullptr;
    void* kernel = nullptr;
    unsigned block_index = 0;
    Block* threads = nullptr;
    size_t running = 0;
    Fiber launcher;
    Place scheduler;
    std::mt19937_64 random;
    std::string error;  // why the launch ends
};

State s;
std::map<size_t, Block> blocks;

Thread& self() { return *(*s.threads)[s.running]; }
Thread& thread(size_t i) { return *(*s.threads)[i]; }

// A function of its own: one that both keeps a place and leaves for another is not compiled right by GCC.
[[noreturn]] __attribute__((noipa)) void go_on(Place& place) { __builtin_longjmp(place, 1); }

__attribute__((noipa)) void to_scheduler() {
    become(s.launcher);
    if (__builtin_setjmp(self().place) == 0) go_on(s.scheduler);
}

void wait_for(Wait::Kind kind, const char* function, unsigned mask, uint64_t value) {
    self().wait = {kind, function, mask, value};
    to_scheduler();
}

void run_kernel() {
    using Kernel = void (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                            uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                            uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                            uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    while (true) {
        const uint64_t* a = s.arguments;
        reinterpret_cast<Kernel>(s.kernel)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
                                           a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27],
                                           a[28], a[29], a[30], a[31], a[32], a[33], a[34], a[35], a[36], a[37], a[38], a[39]);
        self().done = true;
        to_scheduler();
    }
}

__attribute__((noipa)) void resume(Thread& one) {
    if (__builtin_setjmp(s.scheduler) != 0) return;
    become(one.fiber);
    if (one.begun) go_on(one.place);
    one.begun = true;
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = one.stack;
    one.context.uc_stack.ss_size = kStack;
    one.context.uc_link = nullptr;
    makecontext(&one.context, run_kernel, 0);
    setcontext(&one.context);
}

// --- who goes on ----------------------------------------------------------------------------------------------------------

void synchronize(const std::vector<Thread*>& threads) {
    std::vector<Fiber> fibers;
    for (const Thread* one : threads) fibers.push_back(one->fiber);
    order(fibers, fibers);
}

// The threads of a warp, from thread `first` on, which this one's mask names; none where one of them is not there yet.
std::vector<Thread*> complete(const Thread& one, size_t first) {
    std::vector<Thread*> together;
    for (size_t j = 0; j < 32; ++j) {
        if (((one.wait.mask >> j) & 1) == 0) continue;
        if (first + j >= s.block || thread(first + j).done) return {};
        const Wait& other = thread(first + j).wait;
        if (other.kind != Wait::warp || other.mask != one.wait.mask || std::strcmp(other.function, one.wait.function) != 0) return {};
        together.push_back(&thread(first + j));
    }
    return together;
}

// Lets the threads of a warp go on whose mask is complete. Returns how many.
size_t release_warps() {
    size_t released = 0;
    for (size_t i = 0; i < s.block; ++i) {
        const Thread& one = thread(i);
        if (one.done || one.wait.kind != Wait::warp) continue;
        const std::vector<Thread*> together = complete(one, i / 32 * 32);
        if (together.empty()) continue;
        if (std::strcmp(one.wait.function, "__syncwarp") == 0) synchronize(together);
        emulator::Lanes lanes = {};
        size_t next = 0;
        for (size_t j = 0; j < 32; ++j) {
            if ((one.wait.mask >> j) & 1) lanes.values[j] = together[next++]->wait.value;
        }
        for (Thread* other : together) {
            other->lanes = lanes;
            other->wait = {};
        }
        released += together.size();
    }
    return released;
}

// Lets all threads go on where each that has not ended waits for its block.
size_t release_block() {
    std::vector<Thread*> together;
    for (size_t i = 0; i < s.block; ++i) {
        if (thread(i).done) continue;
        if (thread(i).wait.kind != Wait::block) return 0;
        together.push_back(&thread(i));
    }
    synchronize(together);
    for (Thread* one : together) one->wait = {};
    return together.size();
}

std::string stuck() {
    std::map<std::string, int> places;
    for (size_t i = 0; i < s.block; ++i) {
        if (!thread(i).done) ++places[thread(i).wait.function];
    }
    std::string text = "threads wait at different places for ever:";
    for (auto& [function, count] : places) text += " " + std::to_string(count) + " at " + function;
    return text;
}

void run_block() {
    std::vector<size_t> turns(s.block);
    for (size_t i = 0; i < s.block; ++i) {
        turns[i] = i;
        thread(i).done = false;
        thread(i).wait = {};
    }
    while (true) {
        std::shuffle(turns.begin(), turns.end(), s.random);
        size_t ran = 0, alive = 0;
        const uint64_t held = s.random() & s.random();  // a quarter of the warps stays behind the others
        bool holds = false;
        for (const size_t i : turns) {
            if (thread(i).done || thread(i).wait.kind != Wait::nothing) continue;
            if ((held >> (i / 32)) & 1) {
                holds = true;
                continue;
            }
            s.running = i;
            resume(thread(i));
            if (!s.error.empty()) return;
            ++ran;
        }
        for (size_t i = 0; i < s.block; ++i) alive += !thread(i).done;
        if (alive == 0) return;
        if (release_warps() + release_block() == 0 && ran == 0 && !holds) {
            s.error = stuck();
            return;
        }
    }
}

std::vector<Fiber> fibers_of(size_t copies) {
    std::vector<Fiber> fibers;
    for (size_t i = 0; i < copies; ++i) {
        Block& block = blocks[i];
        while (block.size() < s.block) {
            const std::string name = "block " + std::to_string(i) + " thread " + std::to_string(block.size());
            block.push_back(std::make_unique<Thread>(name));
        }
        for (size_t j = 0; j < s.block; ++j) fibers.push_back(block[j]->fiber);
    }
    return fibers;
}

}  // namespace

// --- what kernels call ----------------------------------------------------------------------------------------------------

namespace emulator {

unsigned thread_index() { return static_cast<unsigned>(s.running); }
unsigned block_index() { return s.block_index; }
unsigned block_size() { return s.block; }
unsigned grid_size() { return s.grid; }

void fail(const char* function, const char* what) {
    s.error = std::string(function) + ": " + what;
    to_scheduler();
    std::abort();
}

void wait_for_block(const char* function) { wait_for(Wait::block, function, 0, 0); }

Lanes exchange(const char* function, unsigned mask, uint64_t value) {
    if (((mask >> (s.running % 32)) & 1) == 0) fail(function, "the mask lacks the calling lane");
    wait_for(Wait::warp, function, mask, value);
    return self().lanes;
}

}  // namespace emulator

// Runs a kernel of `count` arguments (8 bytes each); returns null, or what was wrong. Block i runs as kernels[i % copies], and block
// i + copies on the same fibers: where every block is to have static memory and fibers of its own, there is a copy for each.
extern "C" const char* emulator_launch(
    void* const* kernels, uint64_t copies, uint64_t grid, uint64_t block, const uint64_t* arguments, uint64_t count, uint64_t seed) {
    if (count > kArguments) return "too many arguments";
    uint64_t values[kArguments] = {};
    std::copy(arguments, arguments + count, values);
    s.grid = static_cast<unsigned>(grid);
    s.block = static_cast<unsigned>(block);
    s.arguments = values;
    s.launcher = current_fiber();
    s.random.seed(seed);
    s.error.clear();
    const std::vector<Fiber> fibers = fibers_of(std::min(copies, grid));
    order({s.launcher}, fibers);
    const bool backwards = s.random() % 2 != 0;  // blocks may run in any order
    for (uint64_t i = 0; i < grid && s.error.empty(); ++i) {
        s.block_index = static_cast<unsigned>(backwards ? grid - 1 - i : i);
        s.kernel = kernels[s.block_index % copies];
        s.threads = &blocks[s.block_index % copies];
        run_block();
    }
    order(fibers, {s.launcher});
    if (s.error.empty()) return nullptr;
    blocks.clear();  // of which some were left in the middle of the kernel
    return s.error.c_str();
}
