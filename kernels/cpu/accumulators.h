// One row of a sparse product: three ways of adding up its products by column, all with the same bits.
//
// A product a_ij b_jv is looked at in the order of A's row and, inside of it, of B's; every sum starts with its first product
// and goes on in that order. Integers wrap around, as NumPy's do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings.h"
#include "numbering.h"

namespace spsample {

// A signed overflow in C++ would be undefined.
template <class T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::common_type<T>>;

template <class T>
T multiply(T a, T b) {
    using W = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
}

template <class T>
T add(T a, T b) {
    using W = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
}

// x with identity + x = x, bit for bit, for every x that is a result of arithmetic: 0 + -0.0 would be 0.0.
template <class T>
constexpr T additive_identity() {
    if constexpr (std::is_floating_point_v<T>) {
        return T(-0.0);
    } else {
        return T(0);
    }
}

// Part of a row of B, times one entry of A.
template <class Index, class T>
struct ScaledRow {
    const Index* columns;
    const T* values;
    int64_t count;
    T scale;
};

// Where a row of C goes.
template <class Index, class T>
struct RowOutput {
    Index* columns;
    T* values;
};

// A sum for every column of a range, and bits for those in use; reading out visits them in ascending order. O(products +
// columns / 4096) per row and O(columns) memory. A byte for each 512 columns says whether any of their bits is set: it is only
// ever stored, so that products of neighbouring columns do not wait for each other.
template <class Index, class T>
class DenseAccumulator {
public:
    // Begins a row of C in columns [first, first + width).
    void begin(int64_t first, int64_t width) {
        first_ = first;
        const int64_t lines = ((width - 1) / kLineColumns + 8) / 8 * 8;
        if (lines <= lines_.size()) return;
        sums_ = Buffer<T>(lines * kLineColumns);
        words_ = Buffer<uint64_t>(lines * kLineColumns / 64);
        lines_ = Buffer<uint8_t>(lines);
        std::fill(sums_.data(), sums_.data() + sums_.size(), additive_identity<T>());
        std::fill(words_.data(), words_.data() + words_.size(), 0);
        std::fill(lines_.data(), lines_.data() + lines_.size(), uint8_t{0});
    }

    void add_row(const ScaledRow<Index, T>& row) {
        T* const sums = sums_.data();
        uint64_t* const words = words_.data();
        uint8_t* const lines = lines_.data();
        const int64_t first = first_;
        for (int64_t q = 0; q < row.count; ++q) {
            const uint64_t c = static_cast<uint64_t>(static_cast<int64_t>(row.columns[q]) - first);
            words[c / 64] |= uint64_t{1} << (c % 64);
            lines[c / kLineColumns] = 1;
            sums[c] = add(sums[c], multiply(row.scale, row.values[q]));
        }
    }

    // Writes the row and leaves the accumulator empty. Returns the number of columns.
    int64_t take(const RowOutput<Index, T>& out) {
        int64_t count = 0;
        for (int64_t group = 0; group < lines_.size(); group += 8) {
            uint64_t any;
            std::memcpy(&any, lines_.data() + group, 8);
            if (any == 0) continue;
            for (int64_t line = group; line < group + 8; ++line) {
                if (lines_[line]) count = take_line(line, out, count);
            }
        }
        return count;
    }

private:
    static constexpr int64_t kLineColumns = 512;  // a cache line of bits

    int64_t take_line(int64_t line, const RowOutput<Index, T>& out, int64_t count) {
        T* const sums = sums_.data();
        uint64_t* const words = words_.data();
        for (int64_t w = line * (kLineColumns / 64); w < (line + 1) * (kLineColumns / 64); ++w) {
            for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
                const int64_t c = w * 64 + __builtin_ctzll(bits);
                out.columns[count] = static_cast<Index>(first_ + c);
                out.values[count++] = sums[c];
                sums[c] = additive_identity<T>();
            }
            words[w] = 0;
        }
        lines_[line] = 0;
        return count;
    }

    Buffer<T> sums_;
    Buffer<uint64_t> words_;
    Buffer<uint8_t> lines_;
    int64_t first_ = 0;
};

// All products, cut into ascending runs, which are merged pair by pair (a stable natural merge sort). O(products log runs), most
// often with a run for each row of B.
template <class Index, class T>
class MergeAccumulator {
public:
    void begin() {
        products_.clear();
        starts_.clear();
    }

    void add_row(const ScaledRow<Index, T>& row) {
        for (int64_t q = 0; q < row.count; ++q) {
            const Index column = row.columns[q];
            if (products_.empty() || column < products_.back().column) starts_.push_back(products_.size());
            products_.push_back({column, multiply(row.scale, row.values[q])});
        }
    }

    int64_t take(const RowOutput<Index, T>& out) {
        spare_.resize(products_.size());
        while (starts_.size() > 1) merge_pairs();
        int64_t count = 0;
        for (size_t i = 0; i < products_.size(); ++count) {
            const Index column = products_[i].column;
            T sum = products_[i++].value;
            while (i < products_.size() && products_[i].column == column) sum = add(sum, products_[i++].value);
            out.columns[count] = column;
            out.values[count] = sum;
        }
        return count;
    }

private:
    struct Product {
        Index column;
        T value;
    };

    // Halves the number of runs.
    void merge_pairs() {
        const size_t runs = starts_.size();
        starts_.push_back(products_.size());
        for (size_t r = 0; r < runs; r += 2) {
            const size_t begin = starts_[r], middle = starts_[r + 1], end = starts_[std::min(r + 2, runs)];
            merge(begin, middle, end);
            starts_[r / 2] = begin;
        }
        starts_.resize((runs + 1) / 2);
        products_.swap(spare_);
    }

    // Without a branch that depends on the columns; of equal columns the left one comes first.
    void merge(size_t left, size_t right, size_t end) {
        const Product* const from = products_.data();
        Product* to = spare_.data() + left;
        const size_t middle = right;
        while (left < middle && right < end) {
            const bool take_right = from[right].column < from[left].column;
            *to++ = from[take_right ? right : left];
            right += take_right;
            left += !take_right;
        }
        to = std::copy(from + left, from + middle, to);
        std::copy(from + right, from + end, to);
    }

    std::vector<Product> products_, spare_;
    std::vector<size_t> starts_;
};

// A growing hash table and a sort of its columns: memory in proportion to the row of C, whatever the number of columns.
template <class Index, class T>
class HashAccumulator {
public:
    void begin(int64_t expected) {
        columns_.reset(expected);
        sums_.clear();
    }

    void add_row(const ScaledRow<Index, T>& row) {
        for (int64_t q = 0; q < row.count; ++q) {
            const T product = multiply(row.scale, row.values[q]);
            const size_t number = static_cast<size_t>(columns_.number(row.columns[q]));
            if (number == sums_.size()) {
                sums_.push_back(product);
            } else {
                sums_[number] = add(sums_[number], product);
            }
        }
    }

    int64_t take(const RowOutput<Index, T>& out) {
        ascending(columns_, 0, order_, spare_);
        for (size_t i = 0; i < order_.size(); ++i) {
            out.columns[i] = order_[i].key;
            out.values[i] = sums_[static_cast<size_t>(order_[i].number)];
        }
        return static_cast<int64_t>(order_.size());
    }

private:
    Numbering<Index> columns_;
    std::vector<T> sums_;
    std::vector<Numbered<Index>> order_, spare_;
};

}  // namespace spsample
