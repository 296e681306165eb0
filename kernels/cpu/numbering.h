// Sets of vertices on the host: a growing hash table that numbers keys as they come, tables for k stacked batches,
// and the sort that puts a numbered set in ascending order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "bindings.h"
#include "parallel.h"
#include "spsample/hash_table.h"
#include "spsample/quantisation.h"

namespace spsample {

// A key with its number.
template <class Key>
struct Numbered {
    Key key;
    Key number;
};

// Distinct keys, numbered 0, 1, 2, ... in the order they first come. One per thread, reused from batch to batch:
// `reset` takes time in proportion to `expected` (and not to the largest set so far), growth is amortised O(1) per key.
template <class Key>
class Numbering {
public:
    void reset(int64_t expected) {
        keys_.clear();
        resize(hash_capacity(std::max<int64_t>(expected, 64)));
    }

    // Number of the key; the next free one where it is new.
    Key number(Key key) {
        bool is_new = false;
        const Key next = static_cast<Key>(keys_.size());
        const int64_t slot = map_.insert(key, next, &is_new);
        if (!is_new) return map_.values[slot];
        keys_.push_back(key);
        if (static_cast<int64_t>(keys_.size()) > map_.capacity / 2) grow();
        return next;
    }

    int64_t size() const { return static_cast<int64_t>(keys_.size()); }
    const std::vector<Key>& keys() const { return keys_; }

private:
    void resize(int64_t capacity) {
        if (static_cast<int64_t>(slot_keys_.size()) < capacity) {
            slot_keys_.resize(static_cast<size_t>(capacity));
            slot_values_.resize(static_cast<size_t>(capacity));
        }
        map_ = {slot_keys_.data(), slot_values_.data(), capacity};
        map_.clear();
    }

    void grow() {
        resize(map_.capacity * 2);
        bool is_new = false;
        for (size_t i = 0; i < keys_.size(); ++i) map_.insert(keys_[i], static_cast<Key>(i), &is_new);
    }

    std::vector<Key> keys_;
    std::vector<Key> slot_keys_, slot_values_;
    HashMap<Key, Key> map_{nullptr, nullptr, 0};
};

// Sorts distinct non-negative keys ascending. O(size) passes of 11 bits for large inputs; spare is working memory.
template <class Key>
void sort_by_key(std::vector<Numbered<Key>>& items, std::vector<Numbered<Key>>& spare) {
    const auto by_key = [](const Numbered<Key>& a, const Numbered<Key>& b) { return a.key < b.key; };
    if (items.size() < 1024) {
        std::sort(items.begin(), items.end(), by_key);
        return;
    }
    constexpr int kDigit = 11;
    const Key largest = std::max_element(items.begin(), items.end(), by_key)->key;
    spare.resize(items.size());
    for (int shift = 0; shift < static_cast<int>(8 * sizeof(Key)) && (largest >> shift) != 0; shift += kDigit) {
        std::array<size_t, (1 << kDigit) + 1> start{};
        const auto digit = [shift](Key key) { return static_cast<size_t>(key >> shift) & ((1 << kDigit) - 1); };
        for (const auto& item : items) ++start[digit(item.key) + 1];
        for (size_t d = 1; d < start.size(); ++d) start[d] += start[d - 1];
        for (const auto& item : items) spare[start[digit(item.key)]++] = item;
        items.swap(spare);
    }
}

// The keys numbered `first`, `first` + 1, ... of a set, ascending, each with its number.
template <class Key>
void ascending(
    const Numbering<Key>& set, int64_t first, std::vector<Numbered<Key>>& out, std::vector<Numbered<Key>>& spare) {
    out.clear();
    const std::vector<Key>& keys = set.keys();
    for (int64_t i = first; i < set.size(); ++i) out.push_back({keys[static_cast<size_t>(i)], static_cast<Key>(i)});
    sort_by_key(out, spare);
}

// One read-only table per batch, from the keys of batch i, keys[ptr[i]] .. keys[ptr[i + 1] - 1], to their place in it.
// All tables lie in one piece of memory; a table is never written after it is built, so all threads may look up in it.
template <class Key>
class BatchTables {
public:
    BatchTables(const int64_t* ptr, const Key* keys, int64_t num_batches) : offsets_(num_batches + 1) {
        offsets_[0] = 0;
        for (int64_t i = 0; i < num_batches; ++i) {
            offsets_[i + 1] = checked_sum(offsets_[i], hash_capacity(ptr[i + 1] - ptr[i]));
        }
        slot_keys_ = Buffer<Key>(offsets_[num_batches]);
        slot_values_ = Buffer<Key>(offsets_[num_batches]);
        const ThreadsFor threads(kKeyWork * ptr[num_batches]);
        parallel_chunks(num_batches, 1, [&](int64_t i, int64_t) {
            HashMap<Key, Key> map = batch(i);
            map.clear();
            bool is_new = false;
            for (int64_t j = ptr[i]; j < ptr[i + 1]; ++j) map.insert(keys[j], static_cast<Key>(j - ptr[i]), &is_new);
        });
    }

    HashMap<Key, Key> batch(int64_t i) {
        return {slot_keys_.data() + offsets_[i], slot_values_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]};
    }

private:
    static constexpr int64_t kKeyWork = 16;  // as elements of a loop

    Buffer<int64_t> offsets_;
    Buffer<Key> slot_keys_, slot_values_;
};

// Hash keys must not be negative.
template <class Index>
void require_ids(const In<Index>& ids, const char* name) {
    for (size_t i = 0; i < ids.size(); ++i) require(ids.data()[i] >= 0, name, "must not be negative");
}

}  // namespace spsample
