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

    // words (items): the rank of each item, 0, 1, ... below num_places for as many items, num_places for all others. They get places in their order.
    // memory (4 * num_places): is written to.
    PlacesByUse(int32_t* words, int64_t num_items, int32_t* memory, int64_t num_places)
        : words_(words),
          item_of_rank_(memory),
          places_(reinterpret_cast<Place*>(memory + num_places)),
          num_items_(num_items),
          num_places_(num_places),
          unknown_(static_cast<size_t>(num_places)),
          lists_(32) {
        std::fill_n(item_of_rank_, num_places, kNone);
        int32_t place = 0;
        for (int32_t item = 0; item < num_items; ++item) {
            const int32_t rank = words[item];
            require(rank >= 0 && rank <= num_places, "memory", "a rank is out of range");
            words[item] = absent(rank);
            if (rank == num_places) continue;
            require(item_of_rank_[rank] == kNone, "memory", "a rank comes twice");
            item_of_rank_[rank] = item;
            put(item, place);
            set_unknown(place++);
        }
        require(place == num_places, "memory", "must rank as many items as there are places");
    }

    int64_t num_places() const { return num_places_; }
    int64_t num_items() const { return num_items_; }
    int32_t place_of(int32_t item) const { return words_[item]; }  // below 0 where it has none
    bool has_place(int32_t item) const { return words_[item] >= 0; }
    int32_t rank_of(int32_t item) const { return has_place(item) ? places_[words_[item]].rank : absent(words_[item]); }
    bool is_ranked(int32_t rank) const { return rank < num_places_; }
    int32_t item_at(int64_t place) const { return places_[place].item; }
    void prefetch(int32_t item) const { __builtin_prefetch(&words_[item], 1); }
    void prefetch_place(int32_t place) const { __builtin_prefetch(&places_[place], 1); }
    int64_t nbytes() const {
        return static_cast<int64_t>((static_cast<size_t>(num_items_ + 4 * num_places_) + 2 * lists_.size()) * sizeof(int32_t)) + unknown_.nbytes();
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
        places_[place].below = std::exchange(places.top, place);
        ++places.size;
    }

    // How many places are in the list of a batch.
    int32_t num_in_batch(int32_t batch) const { return lists_[static_cast<size_t>(batch) & (lists_.size() - 1)].size; }

    // No use of what a place holds is known. An item that has no rank gives its place up.
    void set_unknown(int32_t place) {
        const auto [item, rank, below] = places_[place];
        if (is_ranked(rank)) {
            unknown_.insert(static_cast<size_t>(rank));
            ++num_unknown_;
        } else {
            words_[item] = absent(rank);
            put_free(place);
        }
    }

    // A use is known of what a place holds.
    void set_known(int32_t place) {
        unknown_.erase(static_cast<size_t>(places_[place].rank));
        --num_unknown_;
    }

    // How many places hold nothing, or what has no known use.
    int64_t num_spare() const { return num_free_ + num_unknown_; }

    // Takes a place that nothing was in, or that of an item of unknown use whose rank is worse than this one; kNone where there is none.
    int32_t take_above(int32_t rank) {
        if (num_free_ > 0) return take_free();
        if (unknown_.largest() <= rank) return kNone;
        int64_t place = 0;
        take_unknown(1, &place);
        return static_cast<int32_t>(place);
    }

    // Takes so many places, of which there are: those that hold nothing, then those of items whose use is unknown and that score least, then of
    // those that are used last, from batch `last` back.
    void take(int64_t count, int32_t last, int64_t* places) {
        int64_t* const end = places + count;
        while (places != end && num_free_ > 0) *places++ = take_free();
        places += take_unknown(end - places, places);
        take_latest(end - places, last, places);
    }

    // Puts an item into a place that was taken.
    void put(int32_t item, int32_t place) {
        places_[place].rank = absent(words_[item]);
        places_[place].item = item;
        words_[item] = place;
    }

    // Empties a place, of what has no known use, and keeps it for later.
    void free(int32_t place) {
        const auto [item, rank, below] = places_[place];
        if (item == kNone) return;
        set_known(place);
        words_[item] = absent(rank);
        put_free(place);
    }

private:
    // Places of the items that a batch uses next.
    struct List {
        int32_t top = kNone, size = 0;
    };

    // What it holds, the rank of that, and the next place in its list.
    struct Place {
        int32_t item, rank, below;
    };

    // The word of an item without a place, from its rank, and back.
    static constexpr int32_t absent(int32_t rank) { return -1 - rank; }

    void put_free(int32_t place) {
        places_[place] = {kNone, kNone, free_};
        free_ = place;
        ++num_free_;
    }

    int32_t take_free() {
        --num_free_;
        return std::exchange(free_, places_[free_].below);
    }

    // What is needed of each is fetched before any is looked at.
    int64_t take_unknown(int64_t most, int64_t* places) {
        const int64_t count = unknown_.take_largest(most, places);
        num_unknown_ -= count;
        for (int64_t i = 0; i < count; ++i) prefetch(item_of_rank_[places[i]]);
        for (int64_t i = 0; i < count; ++i) places[i] = std::exchange(words_[item_of_rank_[places[i]]], absent(static_cast<int32_t>(places[i])));
        return count;
    }

    void take_latest(int64_t count, int32_t last, int64_t* places) {
        for (int64_t taken = 0; taken < count; --last) {
            for (List& from = list(last); from.size > 0 && taken < count; --from.size) {
                places[taken++] = from.top;
                prefetch(places_[from.top].item);
                from.top = places_[from.top].below;
            }
        }
        for (int64_t i = 0; i < count; ++i) words_[places_[places[i]].item] = absent(places_[places[i]].rank);
    }

    List& list(int32_t batch) { return lists_[static_cast<size_t>(batch) & (lists_.size() - 1)]; }

    int32_t* const words_;         // of items: its place, or where it has none, its rank as a number below 0
    int32_t* const item_of_rank_;
    Place* const places_;
    const int64_t num_items_, num_places_;
    LargestOf unknown_;            // ranks of held items of which no use is known
    std::vector<List> lists_;      // of batches: a ring of a power of two
    int32_t free_ = kNone;         // places that hold nothing
    int64_t num_free_ = 0, num_unknown_ = 0;
};

}  // namespace spsample
