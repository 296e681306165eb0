// Loops over chunks with OpenMP. No exception leaves a parallel region: the first one ends the loop and is thrown after it.
// Every thread computes in the default floating-point environment; Ctrl-C ends a loop between two chunks.
#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "process.h"

namespace spsample {

// How many threads a parallel loop uses: what OpenMP was told, but no more than four per processor, for OpenMP ends the process
// where the system refuses it a thread; 1 in a build without OpenMP, and in a forked process. Processors are counted, which is a system
// call, where there are more threads than at first would do.
inline int thread_limit() {
#ifdef _OPENMP
    if (in_forked_child) return 1;
    static const int usual = 4 * omp_get_num_procs();
    const int threads = omp_get_max_threads();
    return threads <= usual ? threads : std::min(threads, 4 * omp_get_num_procs());
#else
    return 1;
#endif
}

// While it lives, parallel loops of the calling thread use one thread where the work (in elements, about a nanosecond each) is not
// worth waking others for.
class ThreadsFor {
public:
    static constexpr int64_t kWorthWaking = 1 << 17;

    explicit ThreadsFor(int64_t work) {
#ifdef _OPENMP
        if (work < kWorthWaking) {
            before_ = omp_get_max_threads();
            omp_set_num_threads(1);
        }
#else
        (void)work;
#endif
    }
    ThreadsFor(const ThreadsFor&) = delete;
    ThreadsFor& operator=(const ThreadsFor&) = delete;
    ~ThreadsFor() {
#ifdef _OPENMP
        if (before_ > 0) omp_set_num_threads(before_);
#endif
    }

private:
    int before_ = 0;
};

// Keeps the first exception thrown by any thread.
class ExceptionSlot {
public:
    template <class Body>
    void run(Body&& body) noexcept {
        try {
            body();
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (!first_) first_ = std::current_exception();
            failed_ = true;
        }
    }
    bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
    void rethrow() const {
        if (first_) std::rethrow_exception(first_);
    }

private:
    std::mutex mutex_;
    std::exception_ptr first_;
    std::atomic<bool> failed_{false};
};

// Calls body(scratch, begin, end) for the chunks of [0, count), in any order, each once. Every thread has its own
// `scratch`, made by make_scratch() in the thread. Results must not depend on which thread gets which chunk.
template <class MakeScratch, class Body>
void parallel_chunks(int64_t count, int64_t chunk, MakeScratch&& make_scratch, Body&& body) {
    if (count <= 0) return;
    const int64_t num_chunks = (count - 1) / chunk + 1;
    ExceptionSlot slot;
    std::atomic<int64_t> next{0};
    const auto work = [&] {
        const DefaultFloatEnvironment environment;
        SignalWatch signals;
        auto scratch = make_scratch();
        for (int64_t c = next++; c < num_chunks && !slot.failed();) {
            body(scratch, c * chunk, std::min(count, (c + 1) * chunk));
            c = next++;
            if (c < num_chunks) signals.poll();
        }
    };
    const int threads = num_chunks == 1 ? 1 : static_cast<int>(std::min<int64_t>(num_chunks, thread_limit()));
    if (threads > 1) {
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
        slot.run(work);
    } else {
        slot.run(work);  // not as a team of one: OpenMP is left alone in a forked process
    }
    slot.rethrow();
}

// Same without scratch: body(begin, end).
template <class Body>
void parallel_chunks(int64_t count, int64_t chunk, Body&& body) {
    parallel_chunks(
        count, chunk, [] { return 0; }, [&](int, int64_t begin, int64_t end) { body(begin, end); });
}

}  // namespace spsample
