// The src columns of k stacked batches, made ready to be looked for in rows of A: by key, by bit filter, in ascending order.
#pragma once

#include <algorithm>
#include <vector>

#include "bindings.h"
#include "match.h"
#include "numbering.h"

namespace spsample {

// src[ptr[i]] .. src[ptr[i + 1] - 1] are the columns of batch i, distinct, in any order; a column's place is its index among them.
// Never written after it is built, so all threads may read. Memory: 32 to 60 bytes per column of int32.
template <class Index>
class ColumnSets {
public:
    // `is_searched(i)`: whether rows are searched for the columns of batch i, which `sorted` then has.
    template <class IsSearched>
    ColumnSets(const int64_t* ptr, const Index* src, int64_t num_batches, IsSearched&& is_searched)
        : tables_(ptr, src, num_batches), ptr_(ptr), columns_(ptr[num_batches]), places_(ptr[num_batches]), word_ptr_(num_batches + 1) {
        word_ptr_[0] = 0;
        for (int64_t i = 0; i < num_batches; ++i) {
            word_ptr_[i + 1] = word_ptr_[i] + (int64_t(1) << filter_bits(ptr[i + 1] - ptr[i])) / 32;
        }
        words_ = Buffer<uint32_t>(word_ptr_[num_batches]);
        const ThreadsFor threads(kColumnWork * ptr[num_batches]);
        const auto make_scratch = [] { return std::vector<Numbered<Index>>(); };
        parallel_chunks(num_batches, 1, make_scratch, [&](std::vector<Numbered<Index>>& order, int64_t i, int64_t) {
            fill_filter(filter(i), src + ptr[i], ptr[i + 1] - ptr[i]);
            if (is_searched(i)) sort_columns(i, src + ptr[i], order);
        });
    }

    // From column to place.
    HashMap<Index, Index> places(int64_t i) { return tables_.batch(i); }

    KeyFilter filter(int64_t i) { return {words_.data() + word_ptr_[i], 32 - filter_bits(size(i))}; }

    SortedColumns<Index> sorted(int64_t i) const { return {columns_.data() + ptr_[i], places_.data() + ptr_[i], size(i)}; }

private:
    static constexpr int64_t kColumnWork = 16;  // as elements of a loop

    int64_t size(int64_t i) const { return ptr_[i + 1] - ptr_[i]; }

    void fill_filter(KeyFilter filter, const Index* src, int64_t count) {
        std::fill(filter.words, filter.words + (int64_t(1) << (32 - filter.shift)) / 32, 0);
        for (int64_t j = 0; j < count; ++j) filter.add(static_cast<uint64_t>(src[j]));
    }

    // O(count + t log t) where the columns after the first t ascend.
    void sort_columns(int64_t i, const Index* src, std::vector<Numbered<Index>>& order) {
        const int64_t count = size(i);
        order.clear();
        for (int64_t j = 0; j < count; ++j) order.push_back({src[j], static_cast<Index>(j)});
        const auto by_column = [](const Numbered<Index>& a, const Numbered<Index>& b) { return a.key < b.key; };
        int64_t ascending = std::max<int64_t>(count - 1, 0);
        while (ascending > 0 && src[ascending - 1] < src[ascending]) --ascending;
        std::sort(order.begin(), order.begin() + ascending, by_column);
        std::inplace_merge(order.begin(), order.begin() + ascending, order.end(), by_column);
        for (int64_t j = 0; j < count; ++j) {
            require(j == 0 || order[static_cast<size_t>(j - 1)].key < order[static_cast<size_t>(j)].key, "src", "a column is twice in a batch");
            columns_[ptr_[i] + j] = order[static_cast<size_t>(j)].key;
            places_[ptr_[i] + j] = order[static_cast<size_t>(j)].number;
        }
    }

    BatchTables<Index> tables_;
    const int64_t* ptr_;
    Buffer<Index> columns_, places_;
    Buffer<int64_t> word_ptr_;
    Buffer<uint32_t> words_;
};

}  // namespace spsample
