// Which pages stay in memory: those that are wanted soonest in the batches that are known, then those that were wanted most often.
//
// Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966, at the grain of batches: all pages
// of a batch are wanted at once, so a page's next use is the number of a batch. Pages of one next use differ by no bit that is read before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "page_sets.h"

namespace spsample {

// Batches that will be gathered, in order: the next ones, at most `most` of them. For any number of threads.
class KnownBatches {
public:
    explicit KnownBatches(int64_t most) : most_(most) {}

    bool has_room() const { return size() < most_; }

    // False where there is no room.
    bool announce(PageSet&& pages) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (static_cast<int64_t>(batches_.size()) >= most_) return false;
        batches_.push_back(std::move(pages));
        return true;
    }

    // None of them will come.
    void forget() {
        const std::lock_guard<std::mutex> lock(mutex_);
        batches_.clear();
    }

    // A batch of these pages is gathered now: what was announced up to it is over. Where as many others have come in a row as are known,
    // those that are known will not come.
    void reach(const PageSet& pages) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = std::find(batches_.begin(), batches_.end(), pages);
        if (found != batches_.end()) {
            batches_.erase(batches_.begin(), found + 1);
            others_ = 0;
        } else if (++others_ >= static_cast<int64_t>(batches_.size())) {
            batches_.clear();
            others_ = 0;
        }
    }

    // Calls body(pages) for the batches that follow, the next one first, until it returns false.
    template <class Body>
    void for_each(Body&& body) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const PageSet& pages : batches_) {
            if (!body(pages)) return;
        }
    }

    int64_t size() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return static_cast<int64_t>(batches_.size());
    }

private:
    mutable std::mutex mutex_;
    std::deque<PageSet> batches_;
    const int64_t most_;
    int64_t others_ = 0;  // that have come since one of these did
};

// How often pages were wanted, of late: all numbers are halved when one has reached the largest.
class PageUses {
public:
    static constexpr int kMost = 255;

    explicit PageUses(int64_t size) : uses_(static_cast<size_t>(size), 0) {}

    void add(const PageSet& pages) {
        bool full = false;
        pages.for_each([&](int64_t page) { full |= ++uses_[static_cast<size_t>(page)] == kMost; });
        if (!full) return;
        for (uint8_t& count : uses_) count /= 2;
    }
    int of(int64_t page) const { return uses_[static_cast<size_t>(page)]; }

private:
    std::vector<uint8_t> uses_;
};

// Chooses up to `capacity` pages.
class PageChoice {
public:
    // `candidates`: pages that could be kept; `resident`: those of them that are in memory now, which stay where all else is equal.
    // O(batches * pages / 64), and O(candidates) where what is known does not decide.
    PageChoice(const PageSet& candidates, const PageSet& resident, int64_t capacity, PageSet& kept)
        : candidates_(candidates), resident_(resident), kept_(kept), left_(capacity) {
        kept_.clear();
    }

    void run(const KnownBatches& known, const PageUses& uses) {
        if (candidates_.count() <= left_) {
            take_all();
            return;
        }
        known.for_each([&](const PageSet& batch) {
            take([&](size_t i) { return batch.word(i); });
            return left_ > 0;
        });
        if (left_ > 0) take_by(uses);
    }

private:
    void take_all() {
        for (size_t i = 0; i < kept_.num_words(); ++i) kept_.set_word(i, candidates_.word(i));
    }

    // Candidates of among(word) that are not taken yet: all, or those that are in memory and then the first ones, as far as there is room.
    template <class Among>
    void take(Among&& among) {
        const auto open = [&](size_t i) { return candidates_.word(i) & ~kept_.word(i) & among(i); };
        int64_t count = 0;
        for (size_t i = 0; i < kept_.num_words(); ++i) count += __builtin_popcountll(open(i));
        if (count <= left_) {
            for (size_t i = 0; i < kept_.num_words(); ++i) kept_.set_word(i, kept_.word(i) | open(i));
            left_ -= count;
            return;
        }
        take_first([&](size_t i) { return open(i) & resident_.word(i); });
        take_first(open);
    }

    template <class Open>
    void take_first(Open&& open) {
        for (size_t i = 0; i < kept_.num_words() && left_ > 0; ++i) {
            uint64_t bits = open(i);
            for (; __builtin_popcountll(bits) > left_;) bits &= ~(uint64_t{1} << (63 - __builtin_clzll(bits)));
            left_ -= __builtin_popcountll(bits);
            kept_.set_word(i, kept_.word(i) | bits);
        }
    }

    // The most often wanted ones of those that are not taken yet.
    void take_by(const PageUses& uses) {
        std::vector<int64_t> pages_of(PageUses::kMost + 1, 0);
        for_open([&](size_t, int64_t page) { ++pages_of[static_cast<size_t>(uses.of(page))]; });
        int least = PageUses::kMost;  // below which none is taken, and at which some are
        for (int64_t sum = pages_of[PageUses::kMost]; sum < left_ && least > 0;) sum += pages_of[static_cast<size_t>(--least)];
        std::vector<uint64_t> equal(kept_.num_words(), 0);
        for_open([&](size_t i, int64_t page) {
            const uint64_t bit = uint64_t{1} << (page % 64);
            if (uses.of(page) > least) {
                kept_.set_word(i, kept_.word(i) | bit);
                --left_;
            } else if (uses.of(page) == least) {
                equal[i] |= bit;
            }
        });
        take([&](size_t i) { return equal[i]; });
    }

    template <class Body>
    void for_open(Body&& body) const {
        for (size_t i = 0; i < kept_.num_words(); ++i) {
            for (uint64_t rest = candidates_.word(i) & ~kept_.word(i); rest; rest &= rest - 1) {
                body(i, static_cast<int64_t>(i) * 64 + __builtin_ctzll(rest));
            }
        }
    }

    const PageSet& candidates_;
    const PageSet& resident_;
    PageSet& kept_;
    int64_t left_;
};

}  // namespace spsample
