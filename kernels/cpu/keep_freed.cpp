// Whether the C library keeps memory that is freed for what is allocated next, or gives it back to the system at once.
//
// glibc maps large blocks one by one, and unmaps them when they are freed: whoever allocates the same sizes again and again, as a training step
// does, has all their pages zeroed by the system each time.
#include <mutex>

#include "bindings.h"

#if defined(__GLIBC__)
#include <malloc.h>
#include <pthread.h>
#endif

namespace spsample {
namespace {

#if defined(__GLIBC__)

constexpr int kLargestKept = 1 << 30;                            // a larger block is mapped by itself as before
constexpr int kLargestOfOld = 1 << 25;                           // the most that older versions take
constexpr int kAllKept = std::numeric_limits<int>::max();
constexpr int kAdjusted = 1 << 25, kTrimAdjusted = 2 * kAdjusted;  // where glibc's own adjustment ends

void keep() {
    if (mallopt(M_MMAP_THRESHOLD, kLargestKept) == 0) mallopt(M_MMAP_THRESHOLD, kLargestOfOld);
    mallopt(M_TRIM_THRESHOLD, kAllKept);
}

void give_back() {
    mallopt(M_MMAP_THRESHOLD, kAdjusted);
    mallopt(M_TRIM_THRESHOLD, kTrimAdjusted);
    malloc_trim(0);
}

// A process that is forked meanwhile gets a lock that it can take.
void at_fork(void (*before)(), void (*after)()) { pthread_atfork(before, after, after); }

constexpr bool kHasThresholds = true;

#else

void keep() {}
void give_back() {}
void at_fork(void (*)(), void (*)()) {}
constexpr bool kHasThresholds = false;

#endif

// Who wants it kept: any number of threads at a time.
class Keepers {
public:
    void add() {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (count_++ == 0) keep();
    }
    void remove() {
        const std::lock_guard<std::mutex> lock(mutex_);
        require(count_ > 0, "release_freed", "called more often than keep_freed");
        if (--count_ == 0) give_back();
    }

    void lock() { mutex_.lock(); }
    void unlock() { mutex_.unlock(); }

private:
    std::mutex mutex_;
    int64_t count_ = 0;
};

Keepers& keepers() {
    static Keepers* const them = new Keepers;  // never destroyed: threads may outlive the module
    return *them;
}

}  // namespace

void bind_keep_freed(nb::module_& m) {
    m.attr("keeps_freed") = kHasThresholds;
    at_fork([] { keepers().lock(); }, [] { keepers().unlock(); });
    m.def("keep_freed", [] { keepers().add(); }, nb::call_guard<nb::gil_scoped_release>(),
          "Let malloc keep what is freed until release_freed is called as often; without effect but with glibc.");
    m.def("release_freed", [] { keepers().remove(); }, nb::call_guard<nb::gil_scoped_release>(), "Give it back to the system.");
}

}  // namespace spsample
