// Places of a cache by the next use of what they hold: a list for each known batch, and a set of bits in the order of the scores for all of which
// no use is known. What is worth least is found without a pass over places, and nothing is sorted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "lookahead_future.h"

namespace spsample {

// A set of numbers that knows its largest: levels of words, whose bits say which words below hold any.
class LargestOf {
public:
    explicit LargestOf(size_t limit) {
        do {
            limit = limit / 64 + 1;
            levels_.emplace_back(limit, 0);
        } while (limit > 1);
    }

    void insert(size_t number) {
        for (auto& words : levels_) {
            uint64_t& word = words[number / 64];
            const uint64_t before = word;
            word |= uint64_t{1} << (number % 64);
            if (before != 0) return;
            number /= 64;
        }
    }

    void erase(size_t number) {
        uint64_t& word = levels_[0][number / 64];
        word &= ~(uint64_t{1} << (number % 64));
        if (word == 0) erase_above(number / 64);
    }

    void prefetch(size_t number) const { __builtin_prefetch(&levels_[0][number / 64], 1); }

    // Takes the largest ones out, up to so many; gives their number.
    int64_t take_largest(int64_t most, int64_t* numbers) {
        int64_t count = 0;
        while (count < most && largest() >= 0) {
            const size_t first = static_cast<size_t>(largest()) / 64;
            uint64_t left = levels_[0][first];
            for (; left != 0 && count < most; ++count) {
                const int bit = 63 - __builtin_clzll(left);
                left ^= uint64_t{1} << bit;
                numbers[count] = static_cast<int64_t>(64 * first) + bit;
            }
            levels_[0][first] = left;
            if (left == 0) erase_above(first);
        }
        return count;
    }

    // The largest, or -1.
    int32_t largest() const {
        if (levels_.back()[0] == 0) return -1;
        size_t number = 0;
        for (size_t level = levels_.size(); level-- > 0;) number = 64 * number + static_cast<size_t>(63 - __builtin_clzll(levels_[level][number]));
        return static_cast<int32_t>(number);
    }

    int64_t nbytes() const {
        size_t words = 0;
        for (const auto& level : levels_) words += level.size();
        return static_cast<int64_t>(words * sizeof(uint64_t));
    }

private:
    // A word of the first level holds none any more.
    void erase_above(size_t number) {
        for (size_t level = 1; level < levels_.size(); ++level) {
            uint64_t& word = levels_[level][number / 64];
            word &= ~(uint64_t{1} << (number % 64));
            if (word != 0) return;
            number /= 64;
        }
    }

    std::vector<std::vector<uint64_t>> levels_;
};

class PlacesByUse {
public:
    static constexpr int32_t kNone = -1;

    // ranks (items): 0 for the largest score, then 1, ...
    PlacesByUse(const int32_t* ranks, int64_t num_items, int64_t num_places)
        : items_(static_cast<size_t>(num_items)),
          item_of_rank_(static_cast<size_t>(num_items)),
          item_(static_cast<size_t>(num_places), kNone),
          below_(static_cast<size_t>(num_places)),
          unknown_(static_cast<size_t>(num_items)),
          lists_(32) {
        for (int64_t i = 0; i < num_items; ++i) items_[static_cast<size_t>(i)] = {KnownFuture::kOver, kNone, ranks[i]};
        for (int64_t i = 0; i < num_items; ++i) item_of_rank_[static_cast<size_t>(ranks[i])] = static_cast<int32_t>(i);
        for (int64_t p = num_places; p-- > 0;) put_free(static_cast<int32_t>(p));
    }

    int64_t num_places() const { return static_cast<int64_t>(item_.size()); }
    int64_t num_items() const { return static_cast<int64_t>(items_.size()); }
    std::vector<Item>& items() { return items_; }
    int32_t place_of(int32_t item) const { return items_[static_cast<size_t>(item)].place; }
    int32_t rank_of(int32_t item) const { return items_[static_cast<size_t>(item)].rank; }
    int32_t item_at(int64_t place) const { return item_[static_cast<size_t>(place)]; }
    void prefetch(int32_t item) const { __builtin_prefetch(&items_[static_cast<size_t>(item)], 1); }
    void prefetch_link(int32_t place) const { __builtin_prefetch(&below_[static_cast<size_t>(place)], 1); }
    void prefetch_unknown(int32_t item) const { unknown_.prefetch(static_cast<size_t>(rank_of(item))); }
    int64_t nbytes() const {
        const size_t numbers = 4 * items_.size() + item_.size() + below_.size() + 2 * lists_.size();
        return static_cast<int64_t>(numbers * sizeof(int32_t)) + unknown_.nbytes();
    }

    // Lists for batches first, first + 1, ... so many, of which the last one is new and empty.
    void begin_batch(int32_t first, int32_t count) {
        if (static_cast<size_t>(count) > lists_.size()) {
            std::vector<List> lists(2 * lists_.size());
            for (int32_t b = first; b < first + count - 1; ++b) lists[static_cast<size_t>(b) & (lists.size() - 1)] = list(b);
            lists_.swap(lists);
        }
        list(first + count - 1) = {};
    }

    // Puts a place, which is in no list, into that of a batch. What it holds must not be among those of unknown use.
    void add_to_batch(int32_t place, int32_t batch) {
        List& places = list(batch);
        below_[static_cast<size_t>(place)] = std::exchange(places.top, place);
        ++places.size;
    }

    // How many places are in the list of a batch.
    int32_t num_in_batch(int32_t batch) const { return lists_[static_cast<size_t>(batch) & (lists_.size() - 1)].size; }

    // Whether no use of a held item is known.
    void set_unknown(int32_t item) {
        unknown_.insert(static_cast<size_t>(rank_of(item)));
        ++num_unknown_;
    }
    void set_known(int32_t item) {
        unknown_.erase(static_cast<size_t>(rank_of(item)));
        --num_unknown_;
    }

    // How many places hold nothing, or what has no known use.
    int64_t num_spare() const { return num_free_ + num_unknown_; }

    // The rank of the held item of unknown use that scores least; kNone where there is none.
    int32_t worst() const { return unknown_.largest(); }

    bool has_free() const { return free_ != kNone; }

    // Takes a place that nothing was in; there is one.
    int32_t take_free() {
        const int32_t place = free_;
        free_ = below_[static_cast<size_t>(place)];
        --num_free_;
        return place;
    }

    // Takes the place of the item of this rank, whose use is unknown.
    int32_t take_unknown(int32_t rank) {
        unknown_.erase(static_cast<size_t>(rank));
        --num_unknown_;
        return std::exchange(items_[static_cast<size_t>(item_of_rank_[static_cast<size_t>(rank)])].place, kNone);
    }

    // Takes so many places, of which there are: those that hold nothing, then those of items whose use is unknown and that score least, then of
    // those that are used last, from batch `last` back.
    void take(int64_t count, int32_t last, int64_t* places) {
        int64_t* const end = places + count;
        while (places != end && has_free()) *places++ = take_free();
        places += take_unknown(end - places, places);
        take_latest(end - places, last, places);
    }

    // Puts an item into a place that was taken.
    void put(int32_t item, int32_t place) {
        item_[static_cast<size_t>(place)] = item;
        items_[static_cast<size_t>(item)].place = place;
    }

    // Empties a place whose item's use is unknown, and keeps it for later.
    void free(int32_t place) {
        if (item_at(place) != kNone) put_free(take_unknown(rank_of(item_at(place))));
    }

private:
    // Places of the items that a batch uses next.
    struct List {
        int32_t top = kNone, size = 0;
    };

    void put_free(int32_t place) {
        item_[static_cast<size_t>(place)] = kNone;
        below_[static_cast<size_t>(place)] = free_;
        free_ = place;
        ++num_free_;
    }

    // What is needed of each is fetched before any is looked at.
    int64_t take_unknown(int64_t most, int64_t* places) {
        const int64_t count = unknown_.take_largest(most, places);
        num_unknown_ -= count;
        for (int64_t i = 0; i < count; ++i) __builtin_prefetch(&item_of_rank_[static_cast<size_t>(places[i])]);
        for (int64_t i = 0; i < count; ++i) {
            places[i] = item_of_rank_[static_cast<size_t>(places[i])];
            prefetch(static_cast<int32_t>(places[i]));
        }
        for (int64_t i = 0; i < count; ++i) places[i] = std::exchange(items_[static_cast<size_t>(places[i])].place, kNone);
        return count;
    }

    void take_latest(int64_t count, int32_t last, int64_t* places) {
        constexpr int64_t kAhead = 16;
        for (int64_t taken = 0; taken < count; --last) {
            for (List& from = list(last); from.size > 0 && taken < count; --from.size) {
                places[taken++] = from.top;
                __builtin_prefetch(&item_[static_cast<size_t>(from.top)], 1);
                from.top = below_[static_cast<size_t>(from.top)];
            }
        }
        for (int64_t i = 0; i < std::min(kAhead, count); ++i) prefetch(item_[static_cast<size_t>(places[i])]);
        for (int64_t i = 0; i < count; ++i) {
            if (i + kAhead < count) prefetch(item_[static_cast<size_t>(places[i + kAhead])]);
            items_[static_cast<size_t>(item_[static_cast<size_t>(places[i])])].place = kNone;
        }
    }

    List& list(int32_t batch) { return lists_[static_cast<size_t>(batch) & (lists_.size() - 1)]; }

    std::vector<Item> items_;
    std::vector<int32_t> item_of_rank_;
    std::vector<int32_t> item_;   // of each place
    std::vector<int32_t> below_;  // of each place, the next one in its list
    LargestOf unknown_;           // held items of which no use is known
    std::vector<List> lists_;     // of batches: a ring of a power of two
    int32_t free_ = kNone;        // places that hold nothing
    int64_t num_free_ = 0, num_unknown_ = 0;
};

}  // namespace spsample
