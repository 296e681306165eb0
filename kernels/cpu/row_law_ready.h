// Makes rows of A ready to be drawn from by weight: their trees of prefix sums (row_law_tree.h), in memory that the
// second-level cache holds.
#pragma once

#include <algorithm>
#include <vector>

#include "row_law_tree.h"
#include "row_law_weighted_call.h"

namespace spsample {

// Memory for trees, aligned to cache lines.
class TreeStore {
public:
    // Room for `count` elements, a multiple of 16, behind those taken so far. Returns where they begin.
    int64_t extend(int64_t count) {
        const int64_t begin = used_;
        used_ += count;
        if (used_ > static_cast<int64_t>(lines_.size()) * kTreeLanes) {
            lines_.resize(std::max(lines_.size() * 3 / 2, static_cast<size_t>(used_ / kTreeLanes)));
        }
        return begin;
    }
    uint32_t* data() { return lines_.empty() ? nullptr : lines_.data()->elements; }
    int64_t used() const { return used_; }
    void clear() { used_ = 0; }

private:
    struct alignas(64) Line {
        uint32_t elements[kTreeLanes];
    };
    std::vector<Line> lines_;
    int64_t used_ = 0;
};

// The rows made ready since clear(). Memory: 4.3 bytes for each of their entries.
template <class Index, class Real>
class ReadyRows {
public:
    explicit ReadyRows(const WeightedCall<Index, Real>& call) : call_(call), functions_(tree_set().functions<Real>()) {
        rows_.reserve(kMostRows);
    }

    // Whether no further row should be made before clear().
    bool full() const { return rows_.size() == kMostRows || trees_.used() >= kMostElements; }

    // Makes row `number` of A ready, which stays where it is until clear(). near: whether to ask for all of its columns, too. O(degree).
    const ReadyRow& make(int64_t number, bool near) {
        ReadyRow& row = rows_.emplace_back();
        row.vertex = call_.A.vertex(number);
        row.begin = call_.A.begin(number);
        row.degree = call_.A.degree(number);
        row.kind = RowKind::kEmpty;
        row.number = 0;
        row.near = near;
        fill(row, number);
        return row;
    }

    void clear() {
        rows_.clear();
        trees_.clear();
        sums_.clear();
    }

    const uint32_t* trees() { return trees_.data(); }
    TreeRow<WeightedCall<Index, Real>> tree_row(const ReadyRow& row) { return {row, call_, trees_.data(), sums_.data()}; }

private:
    static constexpr size_t kMostRows = 512;
    static constexpr int64_t kMostElements = 48 << 10;

    void fill(ReadyRow& row, int64_t number) {
        const Real* weights = call_.weights(row.begin, row.degree, scaled_);
        if (!call_.draw.replace && row.degree <= call_.draw.size) return take(row, weights);
        RowRule rule;
        if (!call_.rules.find(number, rule)) {
            const ExponentRange range = functions_.range(weights, row.degree);
            if (range.positive == 0) return;  // empty
            if (!call_.draw.replace && range.positive <= call_.draw.size) return take(row, weights);
            rule = new_rule(row, number, weights, range);
        }
        row.number = static_cast<int32_t>(call_.draw.size);
        row.shift = rule.shift;
        row.kind = RowKind::kPlain;
        if (is_moderate(row.degree, rule)) grow_tree(row, weights, rule.wide);
    }

    RowRule new_rule(const ReadyRow& row, int64_t number, const Real* weights, const ExponentRange& range) {
        const int64_t shift = row_shift(weights, row.degree, range);
        const RowRule rule{static_cast<int16_t>(shift), is_wide(range, shift)};
        if (range.positive == row.degree && is_moderate(row.degree, rule)) call_.rules.keep(number, rule);
        return rule;
    }

    // Whether such a row can have a tree.
    static bool is_moderate(int64_t degree, RowRule rule) {
        return rule.shift > -1000 && rule.shift < 1000 && degree < (int64_t(1) << 31);
    }

    // Takes all positive entries of the row.
    void take(ReadyRow& row, const Real* weights) {
        const int64_t room = tree_blocks(std::min(row.degree, call_.draw.size)) * kTreeLanes;
        row.tree = trees_.extend(room);
        uint32_t* positions = trees_.data() + row.tree;
        int32_t number = 0;
        for (int64_t e = 0; e < row.degree; ++e) {
            if (is_positive(weights[e])) positions[number++] = static_cast<uint32_t>(e);
        }
        row.number = number;
        row.kind = number > 0 ? RowKind::kTaken : RowKind::kEmpty;
    }

    void grow_tree(ReadyRow& row, const Real* weights, bool wide) {
        row.tree = trees_.extend(tree_size(row.degree));
        row.levels = static_cast<uint8_t>(tree_levels(row.degree));
        row.sums = static_cast<int64_t>(sums_.size());
        if (wide) sums_.resize(sums_.size() + static_cast<size_t>((row.degree - 1) / kSumsEvery + 1));
        uint32_t* level = trees_.data() + row.tree;
        uint64_t* const sums = wide ? sums_.data() + row.sums : nullptr;
        row.total = functions_.prefix_sums(weights, row.degree, row.shift, level, sums, columns(row));
        for (int64_t blocks = tree_blocks(row.degree); blocks > 1; blocks = tree_blocks(blocks)) level = next_level(level, blocks);
        if (wide && row.total > kNarrowLimit && row.total >> kWideCut < kNarrowLimit) {
            row.kind = RowKind::kWide;
            row.rejected_below = (uint64_t(0) - row.total) % row.total;
        } else if (!wide && row.total < kNarrowLimit) {
            row.kind = RowKind::kNarrow;
            row.rejected_below = static_cast<uint32_t>(kNarrowLimit - row.total) % static_cast<uint32_t>(row.total);
        }
    }

    PrefetchRange columns(const ReadyRow& row) const {
        if (!row.near) return {};
        return {reinterpret_cast<uintptr_t>(call_.A.indices + row.begin), static_cast<int64_t>(sizeof(Index))};
    }

    // Writes the level above one of `blocks` blocks. Returns it.
    static uint32_t* next_level(uint32_t* level, int64_t blocks) {
        uint32_t* above = level + blocks * kTreeLanes;
        for (int64_t b = 0; b < blocks; ++b) above[b] = level[b * kTreeLanes + kTreeLanes - 1];
        std::fill(above + blocks, above + tree_blocks(blocks) * kTreeLanes, above[blocks - 1]);
        return above;
    }

    const WeightedCall<Index, Real>& call_;
    const TreeFunctions<Real>& functions_;
    TreeStore trees_;
    std::vector<uint64_t> sums_;
    std::vector<ReadyRow> rows_;
    std::vector<Real> scaled_;  // weights of the row that is made ready, where they are not stored
};

}  // namespace spsample
