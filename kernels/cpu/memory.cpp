// The pool of large blocks: best fit among the free ones, of equal ones the one used last, huge pages by madvise where the system has them.
#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SPSAMPLE_POOLED 0  // reuse would hide accesses to memory that was given back
#else
#define SPSAMPLE_POOLED 1
#endif

namespace spsample {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kSmallest = size_t{1} << 16;  // smaller blocks are left to malloc, which keeps them itself

bool is_pooled(size_t bytes) { return SPSAMPLE_POOLED && bytes >= kSmallest; }

// Sizes of pooled blocks: an eighth of the power of two below, so that a block serves requests that differ a little.
size_t block_size(size_t bytes) {
    size_t step = kSmallest / 8;
    while (step * 16 <= bytes) step *= 2;
    return (bytes + step - 1) / step * step;
}

#if defined(__linux__) && SPSAMPLE_POOLED
constexpr bool kMapped = true;

// Mapped by itself: what is freed goes back to the system at once, which malloc does not do for what it took from its heap.
void* map_aligned(size_t bytes) noexcept {
    const size_t asked = bytes + kHugePage;
    void* const mapped = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(mapped);
    const size_t before = (kHugePage - begin % kHugePage) % kHugePage;
    char* const memory = static_cast<char*>(mapped) + before;
    if (before) munmap(mapped, before);
    munmap(memory + bytes, asked - before - bytes);  // never empty: before is below a huge page
    madvise(memory, bytes, MADV_HUGEPAGE);           // a hint: failure does no harm
    return memory;
}

void unmap(void* memory, size_t bytes) noexcept { munmap(memory, bytes); }
#else
constexpr bool kMapped = false;

void* map_aligned(size_t) noexcept { return nullptr; }

void unmap(void*, size_t) noexcept {}
#endif

bool is_mapped(size_t bytes) { return kMapped && bytes >= kHugePage; }

// Null where the system has not that much.
void* try_allocate(size_t bytes) noexcept {
    return is_mapped(bytes) ? map_aligned(bytes) : std::malloc(std::max<size_t>(bytes, 1));
}

void free_memory(void* memory, size_t bytes) noexcept {
    if (is_mapped(bytes)) {
        unmap(memory, bytes);
    } else {
        std::free(memory);
    }
}

// All blocks together, in use and kept, take an eighth more memory than those in use took at their peak: the peak of this
// generation of requests and the one before, so that one large call is not remembered for ever. What was kept longest is freed
// first. A call's intermediate blocks and its results differ in size, though, and are not in use together: all of them may
// take more than that, and would be freed and fetched in every call. So the pool remembers the sizes it freed of late. When one
// of them is asked for again, it may keep as much more from then on, up to a quarter of the peak or to 8 MiB, whichever is more,
// and to twice the peak at most. A call that is not repeated never takes it. What nobody asked for in a long time is freed.
class Pool {
public:
    Block take(size_t bytes) {
        const size_t size = block_size(bytes);
        const Block kept = reuse_or_count(size);
        if (kept.memory) return kept;
        void* memory = try_allocate(size);
        if (!memory) {
            clear();
            memory = try_allocate(size);
        }
        if (memory) return {memory, size};
        const std::lock_guard<std::mutex> lock(mutex_);
        used_ -= size;
        throw std::bad_alloc();
    }

    void give(Block block) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        used_ -= block.bytes;
        try {
            free_.emplace_hint(free_.lower_bound(block.bytes), block.bytes, Free{block.memory, given_++});
            kept_ += block.bytes;
        } catch (const std::bad_alloc&) {
            free_memory(block.memory, block.bytes);
        }
        trim();
    }

    size_t kept() noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        return kept_;
    }

    PoolUse use() noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        return {used_ + kept_, most_};
    }

    void reset_peak() noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        most_ = used_ + kept_;
    }

    // Nothing is kept until the next request, so that what a failing call gives back is freed, too.
    void clear() noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        peak_ = peak_before_ = extra_ = 0;
        trim();
        freed_.clear();
    }

    std::mutex& mutex() noexcept { return mutex_; }

private:
    static constexpr int kGeneration = 256;  // requests
    static constexpr uint64_t kIdle = 8 * kGeneration;
    static constexpr size_t kMostExtra = size_t{8} << 20;  // or a quarter of the peak, where that is more

    // A kept block, and how many were given back before it.
    struct Free {
        void* memory;
        uint64_t given;
    };

    // A kept block of `size` bytes, or up to a third more; without one, memory null, and `size` bytes are counted as in
    // use (those of the block that the caller is about to allocate).
    Block reuse_or_count(size_t size) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (++requests_ % kGeneration == 0) begin_generation();
        Block block{nullptr, size};
        const auto found = fitting(free_, size);
        if (found != free_.end()) {
            block = {found->second.memory, found->first};
            free_.erase(found);
            kept_ -= block.bytes;
        } else {
            allow_again(size);
        }
        used_ += block.bytes;
        peak_ = std::max(peak_, used_);
        trim();
        most_ = std::max(most_, used_ + kept_);
        return block;
    }

    // The smallest of `sizes` that serves a request for `size` bytes: up to a third more.
    template <class Sizes>
    static typename Sizes::iterator fitting(Sizes& sizes, size_t size) noexcept {
        const auto found = sizes.lower_bound(size);
        return found != sizes.end() && found->first - found->first / 4 <= size ? found : sizes.end();
    }

    void begin_generation() noexcept {
        peak_before_ = peak_;
        peak_ = used_;
        for (auto one = free_.begin(); one != free_.end();) one = is_idle(one->second.given) ? drop(one) : std::next(one);
        for (auto one = freed_.begin(); one != freed_.end();) one = is_idle(one->second) ? freed_.erase(one) : std::next(one);
        const size_t held = used_ + kept_, base = base_limit();
        extra_ = std::min(extra_, held > base ? held - base : 0);
    }

    bool is_idle(uint64_t given) const noexcept { return given_ - given > kIdle; }

    // A block of `size` bytes is fetched: had one not been freed of late, it would not be.
    void allow_again(size_t size) noexcept {
        const auto found = fitting(freed_, size);
        if (found == freed_.end()) return;
        extra_ += found->first;
        freed_.erase(found);
    }

    size_t peak_in_use() const noexcept { return std::max(peak_, peak_before_); }

    size_t base_limit() const noexcept { return peak_in_use() + peak_in_use() / 8; }

    size_t limit() const noexcept {
        const size_t peak = peak_in_use(), most_extra = std::max(kMostExtra, peak / 4);
        return std::min(base_limit() + std::min(extra_, most_extra), 2 * peak);
    }

    void trim() noexcept {
        while (!free_.empty() && used_ + kept_ > limit()) {
            const auto oldest = std::min_element(free_.begin(), free_.end(), [](const auto& a, const auto& b) {
                return a.second.given < b.second.given;
            });
            remember(oldest->first);
            drop(oldest);
        }
    }

    std::multimap<size_t, Free>::iterator drop(std::multimap<size_t, Free>::iterator one) noexcept {
        kept_ -= one->first;
        free_memory(one->second.memory, one->first);
        return free_.erase(one);
    }

    void remember(size_t size) noexcept {
        try {
            freed_.emplace(size, given_);
        } catch (const std::bad_alloc&) {  // then it is not known that it was there
        }
    }

    std::mutex mutex_;
    std::multimap<size_t, Free> free_;  // of equal ones the last given back first: a cache may still hold it
    std::multimap<size_t, uint64_t> freed_;  // sizes of blocks that made room, and how many blocks had been given back then
    size_t kept_ = 0, used_ = 0, peak_ = 0, peak_before_ = 0, most_ = 0;
    size_t extra_ = 0;  // may be kept beyond the peak and an eighth
    uint64_t requests_ = 0, given_ = 0;
};

// Never destroyed: arrays may be let go of after the module is.
Pool& pool() {
    static Pool* const instance = new Pool;
    return *instance;
}

}  // namespace

Block take_block(size_t bytes) {
    if (is_pooled(bytes)) return pool().take(bytes);
    void* memory = try_allocate(bytes);
    if (!memory) {
        clear_pool();
        memory = try_allocate(bytes);
    }
    if (!memory) throw std::bad_alloc();
    return {memory, bytes};
}

void give_block(Block block) noexcept {
    if (is_pooled(block.bytes)) {
        pool().give(block);
    } else {
        free_memory(block.memory, block.bytes);
    }
}

size_t pool_bytes() noexcept { return pool().kept(); }

PoolUse pool_use() noexcept { return pool().use(); }

void reset_pool_peak() noexcept { pool().reset_peak(); }

void clear_pool() noexcept { pool().clear(); }

void lock_pool() noexcept { pool().mutex().lock(); }

void unlock_pool() noexcept { pool().mutex().unlock(); }

}  // namespace spsample
