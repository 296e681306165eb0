// What is known of the future: the items of the next batches, in order, and for each use of an item the batch of its next one.
//
// Uses lie in a ring, batch after batch. Batches that are announced together are linked from the last one back: a byte for each item tells the
// first of them that uses it, so far. Then the uses before them are looked through for those that had no next one.
#pragma once

#include <algorithm>
#include <array>
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

class KnownFuture {
public:
    static constexpr int32_t kUnknown = -1;        // in place of the number of the next batch that uses an item
    static constexpr int32_t kMostTogether = 255;  // batches

    struct Batch {
        uint32_t first;  // its first use
        uint32_t size;
    };

    // first_of (items): 0, and so after each call.
    explicit KnownFuture(uint8_t* first_of) : first_of_(first_of), items_(1), next_(1) {}

    int32_t num_batches() const { return static_cast<int32_t>(batches_.size()); }
    int32_t first_batch() const { return first_batch_; }
    const Batch& front() const { return batches_.front(); }
    int32_t item(uint32_t number) const { return items_[number & mask()]; }
    int32_t next(uint32_t number) const { return next_[number & mask()]; }  // batch of the item's next use; its own, where it came before in it
    int64_t use_bytes() const { return static_cast<int64_t>(items_.size() * 2 * sizeof(int32_t)); }

    // Appends a batch, whose items are in range. Its uses are to be linked.
    template <class Index>
    void append(const Index* ids, int64_t size) {
        reserve(size);
        if (batches_.empty()) first_batch_ = 0;
        const auto [at, before, all] = span(end_, static_cast<size_t>(size));
        std::copy(ids, ids + before, &items_[at]);
        std::copy(ids + before, ids + all, items_.data());
        batches_.push_back({end_, static_cast<uint32_t>(size)});
        end_ += static_cast<uint32_t>(size);
    }

    // Links the last `count` batches, which were appended, to each other and to those before. Calls first_use(item, batch) once for each item that
    // no batch before used, where is_wanted(item) holds.
    template <class IsWanted, class FirstUse>
    void link(int32_t count, const IsWanted& is_wanted, const FirstUse& first_use) {
        const int32_t begin = num_batches() - count, first_batch = first_batch_ + begin - 1;  // so that the first of them is 1
        for (int32_t together = count; together > 0; --together) {
            const Batch& batch = batches_[static_cast<size_t>(begin + together - 1)];
            for (const auto [at, size] : parts(batch.first, batch.size)) link_back(&items_[at], &next_[at], size, together, first_batch);
        }
        const uint32_t new_uses = batches_[static_cast<size_t>(begin)].first;
        for (const auto [at, size] : parts(begin_, new_uses - begin_)) link_on(&items_[at], &next_[at], size, first_batch);
        std::vector<int32_t> found(kBlock);
        for (int32_t together = 1; together <= count; ++together) {
            const Batch& batch = batches_[static_cast<size_t>(begin + together - 1)];
            for (const auto [at, size] : parts(batch.first, batch.size)) {
                for (size_t i = 0; i < size; i += kBlock) {
                    const int64_t wanted = take_first(&items_[at + i], std::min(kBlock, size - i), is_wanted, found.data());
                    for (int64_t f = 0; f < wanted; ++f) first_use(found[static_cast<size_t>(f)], first_batch + together);
                }
            }
        }
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
    static constexpr size_t kFewest = 64, kMost = size_t{1} << 30, kBlock = 256, kAhead = 48;  // uses
    static constexpr uint8_t kLinked = 0;                                                      // in first_of_, where a use before is linked to it

    struct Span {
        size_t at, before, size;  // the first `before` of them from `at` on, the others from the begin of the ring
    };
    struct Part {
        size_t at, size;
    };

    uint32_t mask() const { return static_cast<uint32_t>(items_.size() - 1); }
    Span span(uint32_t first, size_t size) const { return {first & mask(), std::min(size, items_.size() - (first & mask())), size}; }
    std::array<Part, 2> parts(uint32_t first, size_t size) const {
        const Span all = span(first, size);
        return {Part{all.at, all.before}, Part{0, all.size - all.before}};
    }

    // Makes room for a batch: for as many uses as a power of two, so that an index is a mask.
    void reserve(int64_t batch_size) {
        const int64_t wanted = int64_t{end_ - begin_} + batch_size;
        size_t size = std::max(items_.size(), kFewest);
        while (size < static_cast<size_t>(wanted)) size *= 2;
        if (size > kMost) throw std::overflow_error("more than 2^30 uses of items are known ahead");
        if (size == items_.size()) return;
        std::vector<int32_t> items(size), next(size);
        for (uint32_t number = begin_; number != end_; ++number) {
            items[number & (size - 1)] = item(number);
            next[number & (size - 1)] = this->next(number);
        }
        items_.swap(items);
        next_.swap(next);
    }

    // Uses of a batch are linked to those of batches behind it.
    void link_back(const int32_t* items, int32_t* next, size_t size, int32_t together, int32_t first_batch) const {
        uint8_t* const first_of = first_of_;
        for (size_t i = 0; i < size; ++i) {
            __builtin_prefetch(&first_of[items[std::min(i + kAhead, size - 1)]], 1);
            const int32_t behind = std::exchange(first_of[items[i]], static_cast<uint8_t>(together));
            next[i] = chosen(behind != 0, first_batch + behind, kUnknown);
        }
    }

    // Uses before are linked that had no next one.
    void link_on(const int32_t* items, int32_t* next, size_t size, int32_t first_batch) const {
        uint8_t* const first_of = first_of_;
        for (size_t i = 0; i < size; ++i) {
            __builtin_prefetch(&first_of[items[std::min(i + kAhead, size - 1)]], 1);
            const int32_t behind = first_of[items[i]], no_next = -(next[i] == kUnknown), linked = -(behind != 0) & no_next;
            next[i] ^= linked & (kUnknown ^ (first_batch + behind));
            first_of[items[i]] = static_cast<uint8_t>(behind & ~no_next);
        }
    }

    // Of some uses of a batch, those that nothing is linked to and that are wanted. Gives their number.
    template <class IsWanted>
    int64_t take_first(const int32_t* items, size_t size, const IsWanted& is_wanted, int32_t* found) const {
        uint8_t* const first_of = first_of_;
        int64_t count = 0, wanted = 0;
        for (size_t i = 0; i < size; ++i) {
            found[count] = items[i];
            count += std::exchange(first_of[items[i]], kLinked) != kLinked;
        }
        for (int64_t i = 0; i < count; ++i) {
            found[wanted] = found[i];
            wanted += is_wanted(found[i]);
        }
        return wanted;
    }

    uint8_t* const first_of_;     // of items: which of the batches that are linked uses each first
    std::vector<int32_t> items_;  // the ring
    std::vector<int32_t> next_;   // of each use
    std::deque<Batch> batches_;
    uint32_t begin_ = 0, end_ = 0;  // known uses
    int32_t first_batch_ = 0;
};

}  // namespace spsample
