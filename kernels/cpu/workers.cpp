// One pool of threads for the process. All that threads share is guarded by one lock, which each takes twice a loop.
#include "workers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include "process.h"

namespace spsample {
namespace {

constexpr int kMostPerProcessor = 4;
// How long a thread looks for what it waits for before it sleeps. The loops of one call mostly follow each other sooner, with Python
// between them, and being woken takes as long as a short loop. With 50 us calls of 1 ms took 1.15 times as long (docs/adr/0008-own-threads.md).
constexpr std::chrono::microseconds kLook{1000};

int processors() {
#if defined(__linux__)
    cpu_set_t sets[8];  // one is too small for the system where there may be more than 1024 processors
    if (sched_getaffinity(0, sizeof sets, sets) == 0) return std::max(1, CPU_COUNT_S(sizeof sets, sets));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// The first number of a list such as "4,2"; `fallback` where the variable is missing or no number >= 1.
int number_from(const char* variable, int fallback) {
    const char* text = std::getenv(variable);
    const long number = text ? std::strtol(text, nullptr, 10) : 0;
    return number >= 1 ? static_cast<int>(std::min(number, 1L << 20)) : fallback;
}

int usual_limit() {
    static const int limit = std::min(number_from("OMP_NUM_THREADS", processors()), number_from("OMP_THREAD_LIMIT", 1 << 20));
    return limit;
}

thread_local int told = 0;         // by set_thread_limit
thread_local bool in_team = false;  // in a parallel loop: those within run on one thread

void pause() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

// Until done() or kLook has passed. The processor is left to others that wait for it: one of them may be what is looked for.
template <class Done>
void look_for(Done&& done) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + kLook;
    while (!done() && Clock::now() < end) {
        for (int i = 0; i < 8 && !done(); ++i) pause();
        std::this_thread::yield();
    }
}

// Those that a worker leaves to Python's main thread, which they wake from its sleep: all but what its own instructions raise, such
// as a mapped file that has become shorter. Those have to find their handlers (faulthandler's, the sanitizers').
sigset_t signals_of_others() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&signals, own);
    return signals;
}

// A loop that is under way. It lives on the stack of the thread that began it.
struct Loop {
    CallRef<> work;
    int wanted;                   // threads that may still join
    std::atomic<int> running{0};  // that have joined and not ended; changed under the lock
    Loop* next = nullptr;
};

class Pool {
public:
    // Offers a loop to `loop.wanted` threads.
    void open(Loop& loop) {
        int wake;
        bool all;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            loop.next = first_;
            first_ = &loop;
            offered_.fetch_add(loop.wanted, std::memory_order_relaxed);
            while (idle_ < offered_.load(std::memory_order_relaxed) && start_worker()) {
            }
            wake = std::min(loop.wanted, sleeping_);
            all = wake == sleeping_;
        }
        if (all) return work_.notify_all();
        for (; wake > 0; --wake) work_.notify_one();  // the others would wake in vain
    }

    // Takes the offer back, and waits for the threads that joined.
    void close(Loop& loop) {
        std::unique_lock<std::mutex> lock(mutex_);
        Loop** place = &first_;
        while (*place != &loop) place = &(*place)->next;
        *place = loop.next;
        offered_.fetch_sub(loop.wanted, std::memory_order_relaxed);
        if (loop.running == 0) return;
        lock.unlock();
        look_for([&] { return loop.running.load(std::memory_order_relaxed) == 0; });
        lock.lock();  // even where none runs any more: the last one may not have let go of the loop
        ended_.wait(lock, [&] { return loop.running == 0; });
    }

private:
    // Counted as idle from here on, so that no second thread is started for the same offer.
    bool start_worker() {
        if (workers_ >= kMostPerProcessor * processors()) return false;
        const sigset_t blocked = signals_of_others();
        sigset_t before;
        pthread_sigmask(SIG_SETMASK, &blocked, &before);
        bool started = true;
        try {
            std::thread([this] { serve(); }).detach();
            ++workers_;
            ++idle_;
        } catch (...) {  // no thread, or no memory for one: the loop is offered already, and has to be closed
            started = false;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return started;
    }

    void serve() {
        in_team = true;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            Loop* loop = first_;
            while (loop && loop->wanted == 0) loop = loop->next;
            if (!loop) {
                await_work(lock);
                continue;
            }
            join(*loop, lock);
        }
    }

    void join(Loop& loop, std::unique_lock<std::mutex>& lock) {
        --loop.wanted;
        ++loop.running;
        --idle_;
        offered_.fetch_sub(1, std::memory_order_relaxed);
        lock.unlock();
        loop.work();
        lock.lock();
        ++idle_;
        if (--loop.running == 0) ended_.notify_all();
    }

    void await_work(std::unique_lock<std::mutex>& lock) {
        lock.unlock();
        look_for([&] { return offered_.load(std::memory_order_relaxed) > 0; });
        lock.lock();
        ++sleeping_;
        work_.wait(lock, [&] { return offered_.load(std::memory_order_relaxed) > 0; });
        --sleeping_;
    }

    std::mutex mutex_;
    std::condition_variable work_;   // a loop was offered
    std::condition_variable ended_;  // the last thread has ended a loop
    std::atomic<int> offered_{0};    // places in all loops: changed under the lock, read without it while spinning
    Loop* first_ = nullptr;
    int workers_ = 0;
    int idle_ = 0;      // not in a loop
    int sleeping_ = 0;  // of these, asleep
};

// Never destroyed: threads may wait in it when the process ends.
Pool& pool() {
    static Pool* const only = new Pool;
    return *only;
}

class InTeam {
public:
    InTeam() { in_team = true; }
    InTeam(const InTeam&) = delete;
    InTeam& operator=(const InTeam&) = delete;
    ~InTeam() { in_team = false; }
};

}  // namespace

int thread_limit() {
    if (in_team || in_forked_child) return 1;
    static const int usual = kMostPerProcessor * processors();
    const int threads = told > 0 ? told : usual_limit();
    return threads <= usual ? threads : std::min(threads, kMostPerProcessor * processors());
}

int set_thread_limit(int threads) {
    const int before = told;
    told = threads;
    return before;
}

void run_team(int threads, CallRef<> work) {
    if (threads <= 1) return work();
    const InTeam inside;
    Loop loop{work, threads - 1};
    pool().open(loop);
    work();
    pool().close(loop);
}

}  // namespace spsample
