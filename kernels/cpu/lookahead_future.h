// What is known of the future: the items of the next batches, in order, and for each use of an item the batch of its next one.
//
// Uses lie in a ring, batch after batch. For each item the number of its last known use is kept, so that an announcement links that use to
// the new batch: a random load and two random stores for each use, whose lines are fetched ahead; no branch on what is in it, and no pass over
// the items.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "bindings.h"

namespace spsample {

// `yes` or `no`, without a branch: which of them cannot be foreseen.
template <class T>
T chosen(bool is_yes, T yes, T no) {
    return no ^ ((no ^ yes) & -static_cast<T>(is_yes));
}

// What is looked up of an item, side by side: one cache line brings all of it.
struct Item {
    uint32_t last;  // the number of its last known use; where none is known, a number that is over
    int32_t place;  // where it is held
    int32_t rank;   // by score
};

class KnownFuture {
public:
    static constexpr int32_t kUnknown = -1;  // in place of the number of the next batch that uses an item

    struct Batch {
        uint32_t first;  // its first use
        uint32_t size;
    };

    static constexpr uint32_t kOver = ~uint32_t{0};  // a number that is over at first

    KnownFuture() : items_(1), next_(2) {}

    int32_t num_batches() const { return static_cast<int32_t>(batches_.size()); }
    int32_t first_batch() const { return first_batch_; }
    const Batch& front() const { return batches_.front(); }
    int32_t item(uint32_t number) const { return items_[number & mask()]; }
    int32_t next(uint32_t number) const { return next_[number & mask()]; }  // batch of the item's next use; its own, where it comes again in it
    int64_t use_bytes() const { return static_cast<int64_t>(items_.size() * 2 * sizeof(int32_t)); }

    // Makes room for a batch: for as many uses as a power of two, so that an index is a mask.
    void reserve(int64_t batch_size, std::vector<Item>& known) {
        const int64_t wanted = int64_t{end_ - begin_} + batch_size;
        size_t size = std::max(items_.size(), kFewest);
        while (size < static_cast<size_t>(wanted)) size *= 2;
        if (size > kMost) throw std::overflow_error("more than 2^30 uses of items are known ahead");
        if (size > items_.size()) {
            std::vector<int32_t> items(size), next(size + 1);
            for (uint32_t number = begin_; number != end_; ++number) {
                items[number & (size - 1)] = item(number);
                next[number & (size - 1)] = this->next(number);
            }
            items_.swap(items);
            next_.swap(next);
        }
        if (until_renewed_ < batch_size) renew(known);
    }

    // Appends a batch that there is room for; its items are in range. Puts those that have a place and of which no use was known, each once,
    // into `first_uses`, which has room for the batch, and gives their number.
    template <class Index>
    int64_t announce(const Index* ids, int64_t size, Item* known, int32_t* first_uses) {
        if (batches_.empty()) first_batch_ = 0;
        const int32_t batch = first_batch_ + num_batches();
        const uint32_t first = end_;
        append(ids, size);
        int64_t found = 0;
        for (uint32_t number = first; number != end_;) {
            const uint32_t count = std::min(end_ - number, kBlock);
            found += link(number, count, batch, known, first_uses + found);
            number += count;
        }
        until_renewed_ -= size;
        batches_.push_back({first, static_cast<uint32_t>(size)});
        return found;
    }

    // Whether these are the items of the first batch, of which there are as many.
    template <class Index>
    bool is_front(const Index* ids) const {
        const auto [at, before, size] = span(front().first, front().size);
        return std::equal(ids, ids + before, &items_[at]) && std::equal(ids + before, ids + size, items_.data());
    }

    // Removes the first batch.
    void pop() {
        begin_ += batches_.front().size;
        batches_.pop_front();
        ++first_batch_;
    }

    // Removes all batches. Calls was_known(item) once for each item that they use.
    template <class WasKnown>
    void clear(WasKnown&& was_known) {
        for (; begin_ != end_; ++begin_) {
            if (next(begin_) == kUnknown) was_known(item(begin_));
        }
        batches_.clear();
    }

private:
    static constexpr size_t kFewest = 64, kMost = size_t{1} << 30;  // uses
    static constexpr int64_t kRenewed = int64_t{1} << 31;           // uses
    static constexpr uint32_t kBlock = 256, kAhead = 48;            // uses

    struct Span {
        size_t at, before, size;  // the first `before` of them from `at` on, the others from the begin of the ring
    };

    uint32_t mask() const { return static_cast<uint32_t>(items_.size() - 1); }
    Span span(uint32_t first, size_t size) const { return {first & mask(), std::min(size, items_.size() - (first & mask())), size}; }

    // Links the last known uses of some items to a batch that uses them, and gives those of which none was known and that have a place, as
    // announce does. A step for all of them at a time, so that none waits for memory that another one needs.
    int64_t link(uint32_t first, uint32_t count, int32_t batch, Item* known, int32_t* first_uses) {
        const uint32_t begin = begin_, all = mask(), nowhere = static_cast<uint32_t>(items_.size());
        uint32_t uses[kBlock];
        for (uint32_t i = 0; i < count; ++i) {
            __builtin_prefetch(&known[item(first + i + kAhead)], 1);  // beyond the batch any item will do
            uses[i] = std::exchange(known[item(first + i)].last, first + i);
        }
        for (uint32_t i = 0; i < count; ++i) uses[i] = chosen(uses[i] - begin < first + i - begin, uses[i] & all, nowhere);
        int64_t num_new = 0, found = 0;
        for (uint32_t i = 0; i < count; ++i) {
            __builtin_prefetch(&next_[uses[i]], 1);
            first_uses[num_new] = item(first + i);
            num_new += uses[i] == nowhere;
        }
        for (uint32_t i = 0; i < count; ++i) next_[uses[i]] = batch;
        for (int64_t i = 0; i < num_new; ++i) {
            first_uses[found] = first_uses[i];
            found += known[first_uses[i]].place >= 0;
        }
        return found;
    }

    // Uses of which no next one is known.
    template <class Index>
    void append(const Index* ids, int64_t count) {
        const auto [at, before, size] = span(end_, static_cast<size_t>(count));
        std::copy(ids, ids + before, &items_[at]);
        std::copy(ids + before, ids + size, items_.data());
        std::fill_n(&next_[at], before, kUnknown);
        std::fill_n(next_.data(), size - before, kUnknown);
        end_ += static_cast<uint32_t>(size);
    }

    // Use numbers begin again after 2^32. Before an old one could be taken for a new one it is set to one that is over. O(items), rarely.
    void renew(std::vector<Item>& known) {
        for (Item& one : known) {
            if (one.last - begin_ >= end_ - begin_) one.last = begin_ - 1;
        }
        until_renewed_ = kRenewed;
    }

    std::vector<int32_t> items_;  // the ring
    std::vector<int32_t> next_;   // of each use, and one more, which is written where nothing is
    std::deque<Batch> batches_;
    uint32_t begin_ = 0, end_ = 0;  // known uses
    int64_t until_renewed_ = kRenewed;
    int32_t first_batch_ = 0;
};

}  // namespace spsample
