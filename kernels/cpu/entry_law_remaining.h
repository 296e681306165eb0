// The later rounds of the entry law: the entries of a frontier whose columns are not chosen yet (docs/law.md, section 3).
#pragma once

#include <algorithm>
#include <vector>

#include "match.h"
#include "scratch.h"
#include "spsample/column_law.h"

namespace spsample {

// Row i keeps all entries but those at the offsets chosen[ptr[i]] .. chosen[ptr[i + 1] - 1], of which each is written less its index
// in the row's list: how many entries that stay come before it. `inclusive`: prefix sums of q times the number that stays.
template <class Index>
class Remaining {
public:
    // Takes out the entries of all columns chosen by now. O(entries), mostly one filtered bit each.
    void rebuild(const Frontier<Index>& frontier, const Chosen& outcomes) {
        const KeyFilter filter = filter_of(outcomes);
        ptr_.assign(1, 0);
        chosen_.clear();
        inclusive_.clear();
        uint64_t sum = 0;
        for (int64_t i = 0; i < frontier.count; ++i) {
            if (i + 1 < frontier.count) SPSAMPLE_PREFETCH(frontier.columns(i + 1));
            if (frontier.q(i) > 0) take_out(frontier.columns(i), frontier.degree(i), filter, outcomes);
            ptr_.push_back(static_cast<int64_t>(chosen_.size()));
            sum += frontier.q(i) * static_cast<uint64_t>(frontier.degree(i) - (ptr_[ptr_.size() - 1] - ptr_[ptr_.size() - 2]));
            inclusive_.push_back(sum);
        }
    }

    uint64_t total() const { return inclusive_.empty() ? 0 : inclusive_.back(); }

    // The column of unit x of [0, total()). O(log count + log entries taken out).
    int64_t column(const Frontier<Index>& frontier, uint64_t x) const {
        const PrefixRow totals{inclusive_.data(), frontier.count};
        const int64_t i = totals.position_of(x);
        const int64_t number = static_cast<int64_t>((x - totals.before(i)) / frontier.q(i));
        const int64_t* first = chosen_.data() + ptr_[static_cast<size_t>(i)];
        const int64_t* last = chosen_.data() + ptr_[static_cast<size_t>(i) + 1];
        return frontier.columns(i)[number + (std::upper_bound(first, last, number) - first)];
    }

private:
    static constexpr int64_t kChunk = 4096;  // entries filtered at a time

    KeyFilter filter_of(const Chosen& outcomes) {
        const int bits = filter_bits(outcomes.count);
        words_.assign(static_cast<size_t>((int64_t(1) << bits) / 32), 0);
        KeyFilter filter{words_.data(), 32 - bits};
        for (int64_t j = 0; j < outcomes.count; ++j) filter.add(static_cast<uint64_t>(outcomes.outcomes[j]));
        return filter;
    }

    void take_out(const Index* row, int64_t degree, const KeyFilter& filter, const Chosen& outcomes) {
        uint32_t* likely = grown(likely_, kChunk + kMatchRoom);
        const int64_t before = static_cast<int64_t>(chosen_.size());
        for (int64_t first = 0; first < degree; first += kChunk) {
            const int64_t passed = match_functions<Index>().likely(filter, row + first, std::min(kChunk, degree - first), likely);
            for (int64_t j = 0; j < passed; ++j) {
                const int64_t offset = first + likely[j];
                if (outcomes.contains(row[offset])) chosen_.push_back(offset - (static_cast<int64_t>(chosen_.size()) - before));
            }
        }
    }

    std::vector<int64_t> ptr_, chosen_;
    std::vector<uint64_t> inclusive_;
    std::vector<uint32_t> words_, likely_;
};

}  // namespace spsample
