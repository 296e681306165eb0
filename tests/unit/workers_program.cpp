// Puts the core's threads to hard use, without Python: `program CASE`, which prints what happened. See test_cpu_workers.py.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "parallel.h"

namespace spsample {
void check_signals() {}
bool on_main_thread() noexcept { return false; }
}  // namespace spsample

namespace {

thread_local bool without_memory = false;
bool huge_system = false;

}  // namespace

void* operator new(std::size_t bytes) {
    void* const memory = without_memory ? nullptr : std::malloc(bytes);
    if (!memory) throw std::bad_alloc();
    return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

// The system's, or that of one with 4096 processors, of which the process may use three.
extern "C" int sched_getaffinity(pid_t process, std::size_t bytes, cpu_set_t* set) noexcept {
    if (!huge_system) return syscall(SYS_sched_getaffinity, process, bytes, set) < 0 ? -1 : 0;
    if (bytes < 4096 / 8) return -1;
    CPU_ZERO_S(bytes, set);
    for (int processor : {7, 2000, 4095}) CPU_SET_S(processor, bytes, set);
    return 0;
}

namespace {

using namespace spsample;

std::atomic<int> wrong{0};

void expect(bool holds, const char* what) {
    if (holds) return;
    ++wrong;
    std::printf("not so: %s\n", what);
}

// Loops of one caller: of any size, some within others, some ended by an exception. Each chunk comes once.
void call(int number, int rounds) {
    std::mt19937 random(static_cast<unsigned>(number));
    const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
    for (int round = 0; round < rounds; ++round) {
        set_thread_limit(1 + below(20));
        const int count = below(3) == 0 ? below(4) : below(2000);
        const int thrown_at = below(10) == 0 && count > 0 ? below(count) : -1;
        std::vector<int> times(static_cast<size_t>(count));
        bool thrown = false;
        try {
            parallel_chunks(count, 1 + below(40), [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                    if (i == thrown_at) throw std::runtime_error("as told");
                    ++times[static_cast<size_t>(i)];
                }
                if (begin % 7) return;
                std::atomic<int> within{0};
                parallel_chunks(5, 1, [&](int64_t, int64_t) { ++within; });
                expect(within == 5, "a loop within a loop runs");
            });
        } catch (const std::runtime_error&) {
            thrown = true;
        }
        expect(thrown == (thrown_at >= 0), "exceptions leave the loop");
        for (int count_of_item : times) expect(thrown || count_of_item == 1, "each item once");
        if (below(100) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(300)));
    }
}

void many_callers() {
    std::vector<std::thread> callers;
    for (int number = 0; number < 5; ++number) callers.emplace_back(call, number, 1500);
    for (std::thread& caller : callers) caller.join();
}

// There is memory for the loop, but none for more threads.
void no_memory_for_threads() {
    std::atomic<int> count{0};
    const auto loop = [&](int threads) {
        set_thread_limit(threads);
        parallel_chunks(100, 1, [&](int64_t, int64_t) { ++count; });
    };
    loop(2);
    without_memory = true;
    loop(4);
    without_memory = false;
    expect(count == 200, "a loop goes on with the threads that there are");
    loop(4);
    expect(count == 300, "so does the next");
}

// A bad access in a worker, as of a mapped file that was cut.
void fault() {
    struct sigaction action = {};
    action.sa_handler = [](int) { _exit(0); };
    sigaction(SIGSEGV, &action, nullptr);
    set_thread_limit(2);
    const auto caller = std::this_thread::get_id();
    std::atomic<bool> joined{false};
    parallel_chunks(2, 1, [&](int64_t, int64_t) {
        if (std::this_thread::get_id() != caller) {
            joined = true;
            *static_cast<volatile int*>(nullptr) = 1;
        }
        while (!joined) std::this_thread::yield();
    });
}

void more_processors_than_a_set_holds() {
    huge_system = true;
    expect(thread_limit() == 3, "a thread for each processor that the process may use");
}

}  // namespace

int main(int, char** arguments) {
    const std::string which = arguments[1];
    if (which == "many callers") many_callers();
    if (which == "no memory for threads") no_memory_for_threads();
    if (which == "fault") fault();
    if (which == "more processors than a set holds") more_processors_than_a_set_holds();
    return wrong != 0 || which == "fault";
}
