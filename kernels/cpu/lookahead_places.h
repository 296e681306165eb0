// Places of a cache by the next use of what they hold: a list for each known batch, and a set of bits in the order of the scores for all of which
// no use is known. What is worth least is found without a pass over places, and nothing is sorted.
#pragma once

#include <algorithm>
#include <cstdint>
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
        for (auto& words : levels_) {
            uint64_t& word = words[number / 64];
            word &= ~(uint64_t{1} << (number % 64));
            if (word != 0) return;
            number /= 64;
        }
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
          heads_(64, kNone) {
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
    void prefetch(int32_t item) const { __builtin_prefetch(&items_[static_cast<size_t>(item)]); }
    int64_t nbytes() const {
        const size_t numbers = 4 * items_.size() + item_.size() + below_.size() + heads_.size();
        return static_cast<int64_t>(numbers * sizeof(int32_t)) + unknown_.nbytes();
    }

    // Lists for batches first, first + 1, ... so many, of which the last one is new and empty.
    void begin_batch(int32_t first, int32_t count) {
        if (static_cast<size_t>(count) > heads_.size()) {
            std::vector<int32_t> heads(2 * heads_.size(), kNone);
            for (int32_t b = first; b < first + count - 1; ++b) heads[static_cast<size_t>(b) & (heads.size() - 1)] = head(b);
            heads_.swap(heads);
        }
        head(first + count - 1) = kNone;
        latest_ = first + count - 1;
    }

    // Puts a place, which is in no list, into that of a batch. What it holds must not be among those of unknown use.
    void add_to_batch(int32_t place, int32_t batch) {
        int32_t& top = head(batch);
        below_[static_cast<size_t>(place)] = top;
        top = place;
    }

    // The latest batch in whose list any place is, of those after `first` up to `last`; where there is none, the one after `first`.
    int32_t latest(int32_t first, int32_t last) {
        while (last > first + 1 && head(last) == kNone) --last;
        return std::max(last, first + 1);
    }

    // Whether no use of a held item is known.
    void set_unknown(int32_t item) { unknown_.insert(static_cast<size_t>(rank_of(item))); }
    void set_known(int32_t item) { unknown_.erase(static_cast<size_t>(rank_of(item))); }

    // The rank of the held item of unknown use that scores least; kNone where there is none.
    int32_t worst() const { return unknown_.largest(); }

    bool has_free() const { return free_ != kNone; }

    // Takes a place that nothing was in; there is one.
    int32_t take_free() {
        const int32_t place = free_;
        free_ = below_[static_cast<size_t>(place)];
        return place;
    }

    // Empties places of items whose use is unknown, those that score least first; gives their number. What is needed of one is fetched while
    // others are looked for.
    int64_t take_unknown(int64_t most, int32_t* places) {
        int64_t count = 0;
        for (; count < most && worst() != kNone; ++count) {
            places[count] = worst();
            unknown_.erase(static_cast<size_t>(places[count]));
            __builtin_prefetch(&item_of_rank_[static_cast<size_t>(places[count])]);
        }
        for (int64_t i = 0; i < count; ++i) {
            places[i] = item_of_rank_[static_cast<size_t>(places[i])];
            __builtin_prefetch(&items_[static_cast<size_t>(places[i])], 1);
        }
        for (int64_t i = 0; i < count; ++i) {
            places[i] = emptied(place_of(places[i]));
        }
        return count;
    }

    // Empties the place of the item of this rank, whose use is unknown.
    int32_t take_unknown(int32_t rank) {
        unknown_.erase(static_cast<size_t>(rank));
        return emptied(place_of(item_of_rank_[static_cast<size_t>(rank)]));
    }

    // Empties a place whose item's next use is later than `batch`, the latest that there is from `first` on; kNone where there is none.
    int32_t take_later_than(int32_t batch) {
        while (latest_ > batch && head(latest_) == kNone) --latest_;
        if (latest_ <= batch) return kNone;
        const int32_t place = head(latest_);
        head(latest_) = below_[static_cast<size_t>(place)];
        return emptied(place);
    }

    // Nothing is emptied meanwhile: lists of all batches up to `last` may have got places.
    void look_from(int32_t last) { latest_ = last; }

    // Puts an item into an empty place.
    void put(int32_t item, int32_t place) {
        item_[static_cast<size_t>(place)] = item;
        items_[static_cast<size_t>(item)].place = place;
    }

    // Empties a place whose item's use is unknown, and keeps it for later.
    void free(int32_t place) {
        if (item_at(place) != kNone) put_free(take_unknown(rank_of(item_at(place))));
    }

private:
    void put_free(int32_t place) {
        below_[static_cast<size_t>(place)] = free_;
        free_ = place;
    }
    int32_t& head(int32_t batch) { return heads_[static_cast<size_t>(batch) & (heads_.size() - 1)]; }
    int32_t emptied(int32_t place) {
        items_[static_cast<size_t>(item_at(place))].place = kNone;
        item_[static_cast<size_t>(place)] = kNone;
        return place;
    }

    std::vector<Item> items_;
    std::vector<int32_t> item_of_rank_;
    std::vector<int32_t> item_;      // of each place
    std::vector<int32_t> below_;     // of each place, the next one in its list
    LargestOf unknown_;              // held items of which no use is known
    std::vector<int32_t> heads_;     // of the lists of batches: a ring of a power of two
    int32_t latest_ = kNone;         // lists of later batches are empty
    int32_t free_ = kNone;           // places that hold nothing
};

}  // namespace spsample
