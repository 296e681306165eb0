// How chunks are handed to threads: those parts of a parallel loop that are the same for each.
#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

namespace spsample {
namespace {

// What the threads of a loop share.
struct Shared {
    Shared(int64_t all, int64_t of_chunk) : count(all), chunk(of_chunk), num_chunks((all - 1) / of_chunk + 1) {}

    const int64_t count, chunk, num_chunks;
    std::atomic<int64_t> taken{0};
    std::atomic<bool> failed{false};
    std::mutex mutex;
    std::exception_ptr first_error;

    // The first error of all threads ends the loop.
    void fail(std::exception_ptr error) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!first_error) first_error = std::move(error);
        failed.store(true, std::memory_order_relaxed);
    }
};

class SharedChunks final : public Chunks {
public:
    explicit SharedChunks(Shared& shared) : shared_(shared) {}

    bool next(int64_t& begin, int64_t& end) override {
        const int64_t c = shared_.taken++;
        if (c >= shared_.num_chunks || shared_.failed.load(std::memory_order_relaxed)) return false;
        if (shared_.num_chunks > 1) signals_.poll();  // before the first chunk it reads the clock only
        begin = c * shared_.chunk;
        end = std::min(shared_.count, begin + shared_.chunk);
        return true;
    }

private:
    Shared& shared_;
    SignalWatch signals_;
};

}  // namespace

void share_chunks(int64_t count, int64_t chunk, CallRef<Chunks&> body) {
    if (count <= 0) return;
    Shared shared(count, chunk);
    auto work = [&] {
        const DefaultFloatEnvironment environment;
        SharedChunks chunks(shared);
        try {
            body(chunks);
        } catch (...) {
            shared.fail(std::current_exception());
        }
    };
    run_team(static_cast<int>(std::min<int64_t>(shared.num_chunks, thread_limit())), work);
    if (shared.first_error) std::rethrow_exception(shared.first_error);
}

}  // namespace spsample
