// Sets of pages as bits, with the place of each page among those of its set: what DiskRows (disk_rows.cpp) keeps and knows.
#pragma once

#include <cstdint>
#include <vector>

namespace spsample {

// One of the pages 0 to size - 1 is a bit. 1/8 byte a page; with places 1/16 more.
class PageSet {
public:
    explicit PageSet(int64_t size) : words_(static_cast<size_t>((size + 63) / 64), 0) {}

    size_t num_words() const { return words_.size(); }
    uint64_t word(size_t i) const { return words_[i]; }
    void set_word(size_t i, uint64_t bits) { words_[i] = bits; }
    bool has(int64_t page) const { return words_[static_cast<size_t>(page / 64)] >> (page % 64) & 1; }
    void add(int64_t page) { words_[static_cast<size_t>(page / 64)] |= uint64_t{1} << (page % 64); }
    void clear() { words_.assign(words_.size(), 0); }
    bool operator==(const PageSet& other) const { return words_ == other.words_; }
    void swap(PageSet& other) noexcept { words_.swap(other.words_); }

    int64_t count() const {
        int64_t sum = 0;
        for (const uint64_t word : words_) sum += __builtin_popcountll(word);
        return sum;
    }

    // Calls body(page) for each page, ascending.
    template <class Body>
    void for_each(Body&& body) const {
        for (size_t i = 0; i < words_.size(); ++i) {
            for (uint64_t rest = words_[i]; rest; rest &= rest - 1) body(static_cast<int64_t>(i) * 64 + __builtin_ctzll(rest));
        }
    }

private:
    std::vector<uint64_t> words_;
};

// A set, and how many of its pages come before one. To be renewed when the set has changed.
class PlacedSet : public PageSet {
public:
    explicit PlacedSet(int64_t size) : PageSet(size), before_(num_words(), 0) {}

    void place() {
        uint32_t sum = 0;
        for (size_t i = 0; i < num_words(); ++i) {
            before_[i] = sum;
            sum += static_cast<uint32_t>(__builtin_popcountll(word(i)));
        }
        size_ = sum;
    }
    int64_t size() const { return size_; }

    // Of a page that is in the set.
    size_t place_of(int64_t page) const {
        const size_t i = static_cast<size_t>(page / 64);
        return before_[i] + static_cast<size_t>(__builtin_popcountll(word(i) & ((uint64_t{1} << (page % 64)) - 1)));
    }
    void swap(PlacedSet& other) noexcept {
        PageSet::swap(other);
        before_.swap(other.before_);
        std::swap(size_, other.size_);
    }

private:
    std::vector<uint32_t> before_;
    int64_t size_ = 0;
};

}  // namespace spsample
