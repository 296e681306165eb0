// The row rules of A's rows that were found so far, kept from call to call.
//
// A rule takes a pass over all weights of a row, the largest and the smallest of which it depends on. It is kept as 2 K + 1 for a wide
// row, 2 K for a narrow one; only of rows without a weight of 0, and where K is of moderate size: all but odd ones. Several calls may
// share the rules, for a row has the same one whoever finds it.
#pragma once

#include <cstdint>

namespace spsample {

struct RowRule {
    int16_t shift;  // K
    bool wide;
};

class RowRules {
public:
    static constexpr int16_t kUnknown = INT16_MIN;

    // kept: one for each row of A, or null where none are kept.
    explicit RowRules(int16_t* kept) : kept_(kept) {}

    // Whether the rule of a row is known; sets it.
    bool find(int64_t row, RowRule& rule) const {
        if (kept_ == nullptr) return false;
        const int16_t kept = __atomic_load_n(kept_ + row, __ATOMIC_RELAXED);
        rule = {static_cast<int16_t>(kept >> 1), (kept & 1) != 0};
        return kept != kUnknown;
    }

    void keep(int64_t row, RowRule rule) const {
        if (kept_ == nullptr) return;
        __atomic_store_n(kept_ + row, static_cast<int16_t>(2 * rule.shift + (rule.wide ? 1 : 0)), __ATOMIC_RELAXED);
    }

private:
    int16_t* kept_;
};

}  // namespace spsample
