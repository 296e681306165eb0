// The pool of large blocks: best fit among the free ones, huge pages by madvise where the system has them.
#include "memory.h"

#include <algorithm>
#include <cstdlib>
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

void* allocate(size_t bytes) {
    const size_t alignment = bytes >= kHugePage ? kHugePage : alignof(std::max_align_t);
    void* memory = nullptr;
    if (bytes >= kHugePage) {
        if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
#if defined(__linux__)
        madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: failure does no harm
#endif
    } else {
        memory = std::malloc(std::max<size_t>(bytes, 1));
        if (!memory) throw std::bad_alloc();
    }
    return memory;
}

class Pool {
public:
    Block take(size_t bytes) {
        const size_t size = block_size(bytes);
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            const auto found = free_.lower_bound(size);
            if (found != free_.end() && found->first - found->first / 4 <= size) {
                const Block block{found->second.memory, found->first};
                free_.erase(found);
                kept_ -= block.bytes;
                use(block.bytes);
                return block;
            }
        }
        const Block block{allocate(size), size};
        const std::lock_guard<std::mutex> lock(mutex_);
        use(size);
        return block;
    }

    void give(Block block) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        used_ -= block.bytes;
        if (!keep(block)) std::free(block.memory);
        while (used_ + kept_ > limit() && !free_.empty()) drop_oldest();
    }

    size_t kept() noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        return kept_;
    }

    void clear() noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const auto& entry : free_) std::free(entry.second.memory);
        free_.clear();
        kept_ = 0;
        most_used_ = used_;
    }

private:
    struct Free {
        void* memory;
        uint64_t given;  // when: blocks given back so far
    };

    // An eighth above the most in use: sizes that do not quite fit each other would else be freed and fetched in every call.
    size_t limit() const { return most_used_ + most_used_ / 8; }

    void use(size_t bytes) {
        used_ += bytes;
        most_used_ = std::max(most_used_, used_);
    }

    bool keep(Block block) noexcept {
        try {
            free_.emplace(block.bytes, Free{block.memory, given_++});
        } catch (const std::bad_alloc&) {
            return false;
        }
        kept_ += block.bytes;
        return true;
    }

    void drop_oldest() noexcept {
        auto oldest = free_.begin();
        for (auto entry = free_.begin(); entry != free_.end(); ++entry) {
            if (entry->second.given < oldest->second.given) oldest = entry;
        }
        kept_ -= oldest->first;
        std::free(oldest->second.memory);
        free_.erase(oldest);
    }

    std::mutex mutex_;
    std::multimap<size_t, Free> free_;
    size_t kept_ = 0, used_ = 0, most_used_ = 0;
    uint64_t given_ = 0;
};

// Never destroyed: arrays may be let go of after the module is.
Pool& pool() {
    static Pool* const instance = new Pool;
    return *instance;
}

}  // namespace

Block take_block(size_t bytes) {
    if (is_pooled(bytes)) return pool().take(bytes);
    return {allocate(bytes), bytes};
}

void give_block(Block block) noexcept {
    if (is_pooled(block.bytes)) {
        pool().give(block);
    } else {
        std::free(block.memory);
    }
}

size_t pool_bytes() noexcept { return pool().kept(); }

void clear_pool() noexcept { pool().clear(); }

}  // namespace spsample
