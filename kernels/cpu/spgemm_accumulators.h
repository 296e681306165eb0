// One row of a sparse product: five ways of adding up its products by column, all with the same bits.
//
// A product a_ij b_jv is looked at in the order of A's row and, inside of it, of B's; every sum starts with its first product
// and goes on in that order. Integers wrap around, as NumPy's do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings.h"
#include "numbering.h"
#include "simd.h"

#if SPSAMPLE_X86
#include <emmintrin.h>  // SSE2: every x86-64 has it
#endif

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

// Up to Most products, as they come.
template <class Index, class T, int64_t Most>
class FewProducts {
public:
    static constexpr int64_t kMost = Most;

    void begin() { count_ = 0; }

    void add_row(const ScaledRow<Index, T>& row) {
        for (int64_t q = 0; q < row.count; ++q) {
            columns_[count_] = row.columns[q];
            values_[count_++] = multiply(row.scale, row.values[q]);
        }
    }

protected:
    Index columns_[Most];
    T values_[Most];
    int64_t count_ = 0;
};

// Very few products: the number of smaller columns is the place of each, unless two are of one column; then each is inserted among
// those before it. O(products^2), without a branch that depends on distinct columns.
template <class Index, class T>
class PairsAccumulator : public FewProducts<Index, T, 6> {
    using Products = FewProducts<Index, T, 6>;
    using Products::columns_, Products::count_, Products::values_;

public:
    int64_t take(const RowOutput<Index, T>& out) {
        int64_t places[Products::kMost] = {}, sum = 0;
        for (int64_t i = 1; i < count_; ++i) {
            for (int64_t j = 0; j < i; ++j) {
                const int64_t above = columns_[j] < columns_[i], below = columns_[i] < columns_[j];
                places[i] += above;
                places[j] += below;
                sum += above + below;
            }
        }
        if (sum < count_ * (count_ - 1) / 2) return inserted(out);
        for (int64_t i = 0; i < count_; ++i) {
            out.columns[places[i]] = columns_[i];
            out.values[places[i]] = values_[i];
        }
        return count_;
    }

private:
    int64_t inserted(const RowOutput<Index, T>& out) {
        int64_t count = 0;
        for (int64_t i = 0; i < count_; ++i) {
            int64_t place = count;
            while (place > 0 && out.columns[place - 1] > columns_[i]) --place;
            if (place > 0 && out.columns[place - 1] == columns_[i]) {
                out.values[place - 1] = add(out.values[place - 1], values_[i]);
                continue;
            }
            std::copy_backward(out.columns + place, out.columns + count, out.columns + count + 1);
            std::copy_backward(out.values + place, out.values + count, out.values + count + 1);
            out.columns[place] = columns_[i];
            out.values[place] = values_[i];
            ++count;
        }
        return count;
    }
};

// Few products: each goes to the place that is the number of smaller columns, found by comparing all with all without a branch;
// equal columns meet there. O(products^2 / vector width).
template <class Index, class T>
class RankAccumulator : public FewProducts<Index, T, 32> {
    using Products = FewProducts<Index, T, 32>;
    using Products::columns_, Products::count_, Products::values_;

public:
    int64_t take(const RowOutput<Index, T>& out) {
        const int64_t padded = (count_ + 7) / 8 * 8;
        std::fill(columns_ + count_, columns_ + padded, std::numeric_limits<Index>::max());
        Index placed[Products::kMost];
        T sums[Products::kMost];
        std::fill(placed, placed + padded, Index(-1));
        std::fill(sums, sums + padded, additive_identity<T>());
        for (int64_t i = 0; i < count_; ++i) {
            Index rank = 0;
            for (int64_t j = 0; j < padded; ++j) rank += static_cast<Index>(columns_[j] < columns_[i]);
            placed[rank] = columns_[i];
            sums[rank] = add(sums[rank], values_[i]);
        }
        int64_t count = 0;
        for (int64_t i = 0; i < count_; ++i) {
            if (placed[i] < 0) continue;  // products of the column before
            out.columns[count] = placed[i];
            out.values[count++] = sums[i];
        }
        return count;
    }
};

// A sum for every column of a range, and a byte that says whether it is in use; reading out visits them in ascending order.
// O(products + columns / 4096) per row and O(columns) memory. Another byte stands for each 64 columns. Both are only ever stored,
// so that products of neighbouring columns do not wait for each other, as they would for bits.
template <class Index, class T>
class DenseAccumulator {
public:
    // Begins a row of C in columns [first, first + width).
    void begin(int64_t first, int64_t width) {
        first_ = first;
        const int64_t lines = ((width - 1) / kLine + 64) / 64 * 64;
        if (lines <= lines_.size()) return;
        sums_ = Buffer<T>(lines * kLine);
        used_ = Buffer<uint8_t>(lines * kLine);
        lines_ = Buffer<uint8_t>(lines);
        std::fill(sums_.data(), sums_.data() + sums_.size(), additive_identity<T>());
        std::fill(used_.data(), used_.data() + used_.size(), uint8_t{0});
        std::fill(lines_.data(), lines_.data() + lines_.size(), uint8_t{0});
    }

    void add_row(const ScaledRow<Index, T>& row) {
        T* const sums = sums_.data();
        uint8_t* const used = used_.data();
        uint8_t* const lines = lines_.data();
        const int64_t first = first_;
        for (int64_t q = 0; q < row.count; ++q) {
            const uint64_t c = static_cast<uint64_t>(static_cast<int64_t>(row.columns[q]) - first);
            used[c] = kUsed;
            lines[c / kLine] = kUsed;
            sums[c] = add(sums[c], multiply(row.scale, row.values[q]));
        }
    }

    // Writes the row and leaves the accumulator empty. Returns the number of columns.
    int64_t take(const RowOutput<Index, T>& out) {
        int64_t count = 0;
        for_each_used(lines_.data(), lines_.size(), [&](int64_t line) {
            for_each_used(used_.data() + line * kLine, kLine, [&](int64_t c) {
                c += line * kLine;
                out.columns[count] = static_cast<Index>(first_ + c);
                out.values[count++] = sums_[c];
                sums_[c] = additive_identity<T>();
            });
        });
        return count;
    }

private:
    static constexpr int64_t kLine = 64;

    static constexpr uint8_t kUsed = 0x80;

    // Calls body(i) for each of `count` bytes that is kUsed, ascending, and makes all of them 0. `count` is a multiple of 64.
    template <class Body>
    static void for_each_used(uint8_t* bytes, int64_t count, Body&& body) {
        for (int64_t i = 0; i < count; i += 64) {
            uint64_t bits = high_bits(bytes + i);
            if (bits == 0) continue;
            std::memset(bytes + i, 0, 64);
            for (; bits != 0; bits &= bits - 1) body(i + __builtin_ctzll(bits));
        }
    }

    // The highest bits of 64 bytes.
    static uint64_t high_bits(const uint8_t* bytes) {
        uint64_t bits = 0;
#if SPSAMPLE_X86
        for (int i = 0; i < 4; ++i) {
            const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * i));
            bits |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(part))) << (16 * i);
        }
#else
        for (int i = 0; i < 64; ++i) bits |= static_cast<uint64_t>(bytes[i] >> 7) << i;
#endif
        return bits;
    }

    Buffer<T> sums_;
    Buffer<uint8_t> used_, lines_;
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
