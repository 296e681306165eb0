// The threads that help in parallel loops: started when first needed, kept, asleep while there is no work for them.
#pragma once

#include <type_traits>

namespace spsample {

// How many threads a parallel loop that the calling thread begins may use, itself included: what set_thread_limit told this thread,
// or else OMP_NUM_THREADS, or else one per processor that the process may use; at most four per processor. 1 in a parallel loop and
// in a forked process.
int thread_limit();

// Tells the calling thread its number of threads (>= 1); returns what it was told before, 0 where it was told none.
int set_thread_limit(int threads);

// A reference to something that can be called with Arguments and returns nothing; it has to outlive the call that is given it.
template <class... Arguments>
class CallRef {
public:
    template <class Callable, class = std::enable_if_t<!std::is_same_v<std::remove_cv_t<Callable>, CallRef>>>
    CallRef(Callable& callable)  // NOLINT: meant to convert
        : callable_(&callable), call_([](void* it, Arguments... arguments) { (*static_cast<Callable*>(it))(arguments...); }) {}

    void operator()(Arguments... arguments) const { call_(callable_, arguments...); }

private:
    void* callable_;
    void (*call_)(void*, Arguments...);
};

// Calls work() in the calling thread and in up to threads - 1 others at the same time; returns when all that began it have ended it.
// A thread that has not begun when the calling thread has ended is not waited for: so the work has to be shared out as it is done.
// Where the system refuses threads, or all are busy in other loops, fewer take part. work does not throw.
void run_team(int threads, CallRef<> work);

}  // namespace spsample
