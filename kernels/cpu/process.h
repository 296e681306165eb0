// What kernels must know of the process and thread that they run in: forks, signals, the floating-point environment.
#pragma once

#include <atomic>
#include <cfenv>
#include <chrono>

namespace spsample {

// Whether this process came from a fork after the module was imported. OpenMP's threads do not survive a fork, and waiting
// for them would hang: such a process works on one thread. (Processes made by spawn or forkserver are not concerned.)
inline std::atomic<bool> in_forked_child{false};

// To be called once, when the module is imported, with the GIL held.
void watch_process();

// Runs Python's signal handlers where signals came in; what a handler raises (Ctrl-C: KeyboardInterrupt) is thrown as
// nanobind::python_error. For the main thread, without the GIL.
void check_signals();

bool on_main_thread() noexcept;

// Checks for signals every 100 ms where the thread is Python's main thread, and never elsewhere.
class SignalWatch {
public:
    void poll() {
        if (!watching_ || Clock::now() < next_) return;
        check_signals();
        next_ = Clock::now() + kPeriod;
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kPeriod{100};
    bool watching_ = on_main_thread();
    Clock::time_point next_ = Clock::now() + kPeriod;
};

// The default floating-point environment (round to nearest, subnormal numbers kept) for as long as the object lives: a
// thread may have been told to flush subnormal numbers (torch.set_flush_denormal), and OpenMP's threads have not.
class DefaultFloatEnvironment {
public:
    DefaultFloatEnvironment() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
    DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;
    ~DefaultFloatEnvironment() { std::fesetenv(&before_); }

private:
    std::fenv_t before_;
};

}  // namespace spsample
