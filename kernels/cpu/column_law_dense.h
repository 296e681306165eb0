// Sums by column for one batch as a dense row over all n columns, with the sums of its blocks: drawn from without prefix sums.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "bindings.h"
#include "quantisation.h"
#include "scratch.h"

namespace spsample {

constexpr int64_t kSumBlock = 256;  // columns under one sum; one block is read per draw

// Sums of entry numerators: uint16_t where every entry counts 1, else uint64_t.
template <class Sum>
struct DenseRow {
    const Sum* sums;            // count, and zeros up to whole blocks
    const uint64_t* inclusive;  // prefix sums over the blocks of the sums, each raised to the column power
    int64_t count;
    int32_t column_power;

    int64_t num_blocks() const { return (count + kSumBlock - 1) / kSumBlock; }
    uint64_t total() const { return count > 0 ? inclusive[num_blocks() - 1] : 0; }
    uint64_t numerator(int64_t column) const { return raise(sums[column], column_power); }
    uint64_t before_block(int64_t block) const { return block > 0 ? inclusive[block - 1] : 0; }

    uint64_t before(int64_t column) const {
        uint64_t sum = before_block(column / kSumBlock);
        for (int64_t v = column / kSumBlock * kSumBlock; v < column; ++v) sum += numerator(v);
        return sum;
    }

    int64_t position_of(uint64_t x) const {
        const int64_t block = upper_bound(inclusive, num_blocks(), x);
        uint64_t sum = before_block(block);
        int64_t column = block * kSumBlock;
        while ((sum += numerator(column)) <= x) ++column;
        return column;
    }

    int64_t next_positive(int64_t column) const {
        while (column < count && sums[column] == 0) {
            const bool empty_block = column % kSumBlock == 0 && is_empty(column / kSumBlock);
            column += empty_block ? kSumBlock : 1;
        }
        return std::min(column, count);
    }

    bool is_empty(int64_t block) const { return inclusive[block] == before_block(block); }

    // Number of positive columns in blocks begin .. end - 1. O(columns of the blocks).
    int64_t count_positive(int64_t begin, int64_t end) const {
        int64_t positive = 0;
        for (int64_t block = begin; block < end; ++block) {
            Sum here = 0;  // at most kSumBlock
            for (int64_t v = block * kSumBlock; v < (block + 1) * kSumBlock; ++v) here = static_cast<Sum>(here + (sums[v] != 0));
            positive += static_cast<int64_t>(here);
        }
        return positive;
    }

    // Writes the positive columns of blocks begin .. end - 1, ascending, and their numerators. O(columns of the blocks).
    template <class Index>
    void write_positive(int64_t begin, int64_t end, Index* columns, uint64_t* numerators) const {
        Index found_columns[kSumBlock];
        uint64_t found_numerators[kSumBlock];
        for (int64_t block = begin; block < end; ++block) {
            if (is_empty(block)) continue;
            int64_t found = 0;
            for (int64_t v = block * kSumBlock; v < (block + 1) * kSumBlock; ++v) {  // without a branch per column
                found_columns[found] = static_cast<Index>(v);
                found_numerators[found] = numerator(v);
                found += sums[v] != 0;
            }
            columns = std::copy_n(found_columns, found, columns);
            numerators = std::copy_n(found_numerators, found, numerators);
        }
    }
};

// In place of a sum: 1 where a column has a positive entry.
using Mark = uint8_t;

// Both sums of a block: of its elements, and of these raised to the column power.
struct BlockSums {
    uint64_t plain;
    uint64_t raised;
};

inline BlockSums block_sums(const uint64_t* sums, int32_t column_power) {
    BlockSums result{0, 0};
    for (int64_t v = 0; v < kSumBlock; ++v) {
        result.plain += sums[v];
        result.raised += raise(sums[v], column_power);
    }
    return result;
}

// The number of marks, twice.
inline BlockSums block_sums(const Mark* marks, int32_t) {
    uint32_t count = 0;
    for (int64_t v = 0; v < kSumBlock; ++v) count += marks[v];
    return {count, count};
}

// Most blocks have small counts, whose squares add up within 32 bits: loops that compilers turn into vector code.
inline BlockSums block_sums(const uint16_t* sums, int32_t column_power) {
    uint32_t plain = 0, any = 0;
    for (int64_t v = 0; v < kSumBlock; ++v) {
        plain += sums[v];
        any |= sums[v];
    }
    if (column_power == 1 || any == 0) return {plain, plain};
    if (any < 2048) {
        int32_t squares = 0;
        for (int64_t v = 0; v < kSumBlock; ++v) {
            const int16_t sum = static_cast<int16_t>(sums[v]);
            squares += sum * sum;
        }
        return {plain, static_cast<uint32_t>(squares)};
    }
    uint64_t raised = 0;
    for (int64_t v = 0; v < kSumBlock; ++v) raised += raise(sums[v], column_power);
    return {plain, raised};
}

// The sums of one batch at a time. A range of columns is made by one thread, in slices that stay in the second-level cache while
// the long rows of the frontier add to them; ranges of one batch may be made by several threads at once. DenseSums<Mark> marks the
// columns that will have a positive sum: plain_total() is their number.
template <class Sum>
class DenseSums {
public:
    static constexpr int64_t kSlice = (int64_t(1) << 18) / static_cast<int64_t>(sizeof(Sum));  // columns; 256 KB
    static constexpr int64_t kRange = int64_t(1) << 17;  // columns made by one thread, where several share a batch; whole slices of sums

    explicit DenseSums(int64_t num_columns)
        : num_columns_(num_columns), num_blocks_((num_columns + kSumBlock - 1) / kSumBlock), sums_(num_blocks_ * kSumBlock),
          raised_(num_blocks_), plain_(num_blocks_) {}

    int64_t num_ranges() const { return num_ranges_of(num_columns_); }
    static int64_t num_ranges_of(int64_t num_columns) { return (num_columns + kRange - 1) / kRange; }

    // Sums of the columns of ranges begin .. end - 1 over the rows of a batch. O(columns + entries within them).
    template <class Index, class Weights>
    void make(
        const CsrView<Index>& A, const Weights& weights, const SelectorView<Index>& Q, const QuantisationRule& rule, int64_t batch, int64_t begin,
        int64_t end) {
        const int64_t first = begin * kRange, last = std::min(end * kRange, num_blocks_ * kSumBlock);
        std::fill(sums_.data() + first, sums_.data() + last, Sum(0));
        std::vector<Part<Index>> parts = long_parts(A, weights, Q, rule, batch, first, last);
        for (int64_t slice = first; slice < last; slice += kSlice) {
            const int64_t stop = std::min(slice + kSlice, last);
            for (Part<Index>& part : parts) {
                const int64_t upto = first_not_below(A.indices, part.position, part.end, stop);
                add(A, weights, rule, batch, part, upto);
                part.position = upto;
            }
            for (int64_t block = slice / kSumBlock; block < stop / kSumBlock; ++block) {
                const BlockSums both = block_sums(sums_.data() + block * kSumBlock, rule.column_power);
                raised_[block] = both.raised;
                plain_[block] = both.plain;
            }
        }
    }

    // The row, after all ranges were made. O(n / kSumBlock).
    DenseRow<Sum> row(int32_t column_power) {
        uint64_t sum = 0;
        for (int64_t block = 0; block < num_blocks_; ++block) raised_[block] = sum += raised_[block];
        return {sums_.data(), raised_.data(), num_columns_, column_power};
    }

    // Sum of all elements: less than what was added where an element of 16 bits was not enough.
    uint64_t plain_total() const {
        uint64_t sum = 0;
        for (int64_t block = 0; block < num_blocks_; ++block) sum += plain_[block];
        return sum;
    }

private:
    // Entries position .. end - 1 of A, of one row, ascending; where all weigh the same, `numerator` is that of each.
    template <class Index>
    struct Part {
        int64_t position, end;
        uint64_t numerator;
    };

    // The entries of the batch's rows within columns [first, last): those of short rows are added, parts of long rows returned.
    template <class Index, class Weights>
    std::vector<Part<Index>> long_parts(
        const CsrView<Index>& A, const Weights& weights, const SelectorView<Index>& Q, const QuantisationRule& rule, int64_t batch, int64_t first,
        int64_t last) {
        std::vector<Part<Index>> parts;
        const int64_t several = 16 * ((last - first) / kSlice + 1);  // entries that make slices worth while
        for (int64_t r = Q.batch_ptr[batch]; r < Q.batch_ptr[batch + 1]; ++r) {
            prefetch_rows(A, Q, r, Q.batch_ptr[batch + 1]);
            const int64_t row = Q.vertices[r];
            Part<Index> part{A.begin(row), A.begin(row) + A.degree(row), 1};
            require_inside(A, part);
            if constexpr (equal_weights<Weights>()) {
                if (rule.shifts && A.degree(row) > 0) part.numerator = quantize(weights(0, A.degree(row)), rule.shifts[batch], rule.power);
            }
            if (first > 0) part.position = first_not_below(A.indices, part.position, part.end, first);
            if (part.end - part.position >= several) {
                parts.push_back(part);
            } else {
                add(A, weights, rule, batch, part, last < num_columns_ ? first_not_below(A.indices, part.position, part.end, last) : part.end);
            }
        }
        return parts;
    }

    // Rows ascend, so that their ends tell. A graph's columns were checked when it was built; other matrices may be drawn from, too.
    template <class Index>
    void require_inside(const CsrView<Index>& A, const Part<Index>& part) const {
        if (part.position == part.end) return;
        const bool inside = A.indices[part.position] >= 0 && static_cast<int64_t>(A.indices[part.end - 1]) < num_columns_;
        require(inside, "indices", "a column is not below the number of columns");
    }

    template <class Weights>
    static constexpr bool equal_weights() {
        return std::is_same_v<Weights, UnitWeights> || std::is_same_v<Weights, RowNormalizedWeights>;
    }

    // Adds the entries of the part before `upto`.
    template <class Index, class Weights>
    void add(const CsrView<Index>& A, const Weights& weights, const QuantisationRule& rule, int64_t batch, const Part<Index>& part, int64_t upto) {
        Sum* sums = sums_.data();
        const Index* columns = A.indices;
        if constexpr (std::is_same_v<Sum, Mark>) return mark(A, weights, rule, part, upto);
        if constexpr (!equal_weights<Weights>()) {
            if (rule.shifts != nullptr) {
                for_each_quantized(weights.data, part.position, upto, rule.shifts[batch], rule.power, [&](int64_t p, uint64_t numerator) {
                    sums[columns[p]] = static_cast<Sum>(sums[columns[p]] + numerator);
                });
                return;
            }
        }
        const Sum numerator = static_cast<Sum>(part.numerator);
        for (int64_t p = part.position; p < upto; ++p) sums[columns[p]] = static_cast<Sum>(sums[columns[p]] + numerator);
    }

    // Marks the columns of these entries, but of those that weigh 0. Stores only, so that neighbours do not wait for each other.
    template <class Index, class Weights>
    void mark(const CsrView<Index>& A, const Weights& weights, const QuantisationRule& rule, const Part<Index>& part, int64_t upto) {
        Mark* marks = sums_.data();
        if constexpr (!equal_weights<Weights>()) {
            if (rule.shifts != nullptr) {
                for (int64_t p = part.position; p < upto; ++p) marks[A.indices[p]] |= static_cast<Mark>(weights.data[p] > 0);
                return;
            }
        }
        for (int64_t p = part.position; p < upto; ++p) marks[A.indices[p]] = 1;
    }

    // First of the ascending entries [begin, end) whose column is not below `column`; end where none is. O(log(steps)).
    template <class Index>
    static int64_t first_not_below(const Index* indices, int64_t begin, int64_t end, int64_t column) {
        int64_t step = 64;
        while (begin + step < end && indices[begin + step] < column) {
            begin += step;
            step *= 2;
        }
        return std::lower_bound(indices + begin, indices + std::min(end, begin + step), column) - indices;
    }

    int64_t num_columns_, num_blocks_;
    Buffer<Sum> sums_;
    Buffer<uint64_t> raised_, plain_;
};

}  // namespace spsample
