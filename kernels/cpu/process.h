// What kernels must know of the process and thread that they run in: forks, signals, the floating-point environment.
#pragma once

#include <atomic>
#include <cfenv>
#include <chrono>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace spsample {

// Whether this process came from a fork after the module was imported. The threads of workers.h do not survive a fork: such a process
// works on one thread. (Processes made by spawn or forkserver are not concerned.)
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
        if (!watching_) return;
        const Clock::time_point now = Clock::now();
        if (last_ == Clock::time_point{}) last_ = now;  // the first time: the loop begins
        if (now - last_ < kPeriod) return;
        check_signals();
        last_ = Clock::now();
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kPeriod{100};
    bool watching_ = on_main_thread();
    Clock::time_point last_{};
};

#if defined(__SSE2__)
// Numbers are computed by SSE, whose control register alone counts: a few nanoseconds instead of a fenv's hundred.
using FloatEnvironment = unsigned;
inline FloatEnvironment float_environment() { return _mm_getcsr(); }
inline void set_float_environment(FloatEnvironment environment) { _mm_setcsr(environment); }
inline void set_default_float_environment() { _mm_setcsr(0x1f80); }  // all exceptions masked, no flags
#else
using FloatEnvironment = std::fenv_t;
inline FloatEnvironment float_environment() {
    std::fenv_t environment;
    std::fegetenv(&environment);
    return environment;
}
inline void set_float_environment(const FloatEnvironment& environment) { std::fesetenv(&environment); }
inline void set_default_float_environment() { std::fesetenv(FE_DFL_ENV); }
#endif

// The default floating-point environment (round to nearest, subnormal numbers kept) for as long as the object lives: a
// thread may have been told to flush subnormal numbers (torch.set_flush_denormal), and those of workers.h have not.
class DefaultFloatEnvironment {
public:
    DefaultFloatEnvironment() { set_default_float_environment(); }
    DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
    DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;
    ~DefaultFloatEnvironment() { set_float_environment(before_); }

private:
    const FloatEnvironment before_ = float_environment();
};

}  // namespace spsample
