// What is known of the future: the items of the next batches, in order, and for each use of an item the batch of its next one.
//
// Uses lie in a ring, batch after batch. For each item the number of its last known use is kept, so that an announcement links that use to
// the new batch: a random load and two random stores for each use, no branch on what is in it, and no pass over the items.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
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
    static constexpr int32_t kUnknown = -1;  // in place of the number of the next batch that uses an item

    struct Use {
        int32_t item;
        int32_t next;  // batch of the item's next use; its own batch, where the item comes again in it
    };
    struct Batch {
        uint32_t first;  // its first use
        uint32_t size;
    };

    explicit KnownFuture(int64_t num_items) : last_(static_cast<size_t>(num_items), ~uint32_t{0}), uses_(1) {}

    int64_t num_items() const { return static_cast<int64_t>(last_.size()); }
    int32_t num_batches() const { return static_cast<int32_t>(batches_.size()); }
    int32_t first_batch() const { return first_batch_; }
    const Batch& front() const { return batches_.front(); }
    const Use& use(uint32_t number) const { return uses_[number & mask()]; }
    int64_t item_bytes() const { return static_cast<int64_t>(last_.size() * sizeof(uint32_t)); }
    int64_t use_bytes() const { return static_cast<int64_t>((uses_.size() - 1) * sizeof(Use)); }

    // Makes room for a batch: for as many uses as a power of two, so that an index is a mask.
    void reserve(int64_t batch_size) {
        const int64_t wanted = int64_t{end_ - begin_} + batch_size;
        size_t size = std::max(uses_.size() - 1, kFewest);
        while (size < static_cast<size_t>(wanted)) size *= 2;
        if (size > kMost) throw std::overflow_error("more than 2^30 uses of items are known ahead");
        if (size >= uses_.size()) {
            std::vector<Use> uses(size + 1);
            for (uint32_t number = begin_; number != end_; ++number) uses[number & (size - 1)] = use(number);
            uses_.swap(uses);
        }
        if (until_renewed_ < batch_size) renew();
    }

    // Appends a batch that there is room for; its items are in range. Puts those of which no use was known, each once, into `first_uses`,
    // which has room for the batch, and gives their number.
    template <class Index>
    int64_t announce(const Index* ids, int64_t size, int32_t* first_uses) {
        if (batches_.empty()) first_batch_ = 0;
        const int32_t batch = first_batch_ + num_batches();
        const uint32_t begin = begin_, first = end_;
        const size_t all = mask();
        Use* const uses = uses_.data();
        uint32_t* const last_uses = last_.data();
        const size_t nowhere = uses_.size() - 1;  // beyond the ring
        int64_t found = 0;
        for (int64_t i = 0; i < size; ++i) {
            const int32_t item = static_cast<int32_t>(ids[i]);
            const uint32_t number = first + static_cast<uint32_t>(i), last = last_uses[item];
            const bool is_known = last - begin < number - begin;
            first_uses[found] = item;
            found += !is_known;
            uses[number & all] = {item, kUnknown};
            uses[chosen(is_known, last & all, nowhere)].next = batch;
            last_uses[item] = number;
        }
        end_ += static_cast<uint32_t>(size);
        until_renewed_ -= size;
        batches_.push_back({first, static_cast<uint32_t>(size)});
        return found;
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
            if (use(begin_).next == kUnknown) was_known(use(begin_).item);
        }
        batches_.clear();
    }

private:
    static constexpr size_t kFewest = 64, kMost = size_t{1} << 30;  // uses
    static constexpr int64_t kRenewed = int64_t{1} << 31;           // uses

    size_t mask() const { return uses_.size() - 2; }

    // Use numbers begin again after 2^32. Before an old one could be taken for a new one it is set to one that is over. O(items), rarely.
    void renew() {
        for (uint32_t& last : last_) {
            if (last - begin_ >= end_ - begin_) last = begin_ - 1;
        }
        until_renewed_ = kRenewed;
    }

    std::vector<uint32_t> last_;  // of each item, the number of its last known use; of others a number that is over
    std::vector<Use> uses_;       // the ring, and one more, which is written where nothing is
    std::deque<Batch> batches_;
    uint32_t begin_ = 0, end_ = 0;  // known uses
    int64_t until_renewed_ = kRenewed;
    int32_t first_batch_ = 0;
};

}  // namespace spsample
