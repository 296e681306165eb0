// Loops over chunks on several threads. No exception leaves a thread: the first one ends the loop and is thrown after it.
// Every thread computes in the default floating-point environment; Ctrl-C ends a loop between two chunks.
#pragma once

#include <cstdint>

#include "process.h"
#include "workers.h"

namespace spsample {

// While it lives, parallel loops of the calling thread use one thread where the work (in elements, about a nanosecond each) is not
// worth waking others for.
class ThreadsFor {
public:
    static constexpr int64_t kWorthWaking = 1 << 17;

    explicit ThreadsFor(int64_t work) : one_(work < kWorthWaking) {
        if (one_) before_ = set_thread_limit(1);
    }
    ThreadsFor(const ThreadsFor&) = delete;
    ThreadsFor& operator=(const ThreadsFor&) = delete;
    ~ThreadsFor() {
        if (one_) set_thread_limit(before_);
    }

private:
    const bool one_;
    int before_ = 0;
};

// What a loop has left, as one thread sees it.
class Chunks {
public:
    virtual bool next(int64_t& begin, int64_t& end) = 0;  // the next chunk; false where there is none, or a thread has failed

protected:
    ~Chunks() = default;
};

// Calls body(chunks) in each thread that takes part.
void share_chunks(int64_t count, int64_t chunk, CallRef<Chunks&> body);

// Calls body(scratch, begin, end) for the chunks of [0, count), in any order, each once. Every thread that gets one has its own
// `scratch`, made by make_scratch() in the thread. Results must not depend on which thread gets which chunk.
template <class MakeScratch, class Body>
void parallel_chunks(int64_t count, int64_t chunk, MakeScratch&& make_scratch, Body&& body) {
    auto in_thread = [&](Chunks& chunks) {
        int64_t begin, end;
        if (!chunks.next(begin, end)) return;
        auto scratch = make_scratch();
        do body(scratch, begin, end);
        while (chunks.next(begin, end));
    };
    share_chunks(count, chunk, in_thread);
}

// Same without scratch: body(begin, end).
template <class Body>
void parallel_chunks(int64_t count, int64_t chunk, Body&& body) {
    auto in_thread = [&](Chunks& chunks) {
        for (int64_t begin, end; chunks.next(begin, end);) body(begin, end);
    };
    share_chunks(count, chunk, in_thread);
}

}  // namespace spsample
