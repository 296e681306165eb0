// The column law and the entry law for one batch (docs/law.md, section 3). For host and device.
#pragma once

#include "spsample/its.h"
#include "spsample/views.h"

namespace spsample {

// --- column law ---------------------------------------------------------------------------------------------------------

// `size` draws with replacement: distinct positions in the order first drawn into `chosen`, how often each into `counts`
// (both empty, with room for min(size, row.count)). O(size log count).
template <class Row>
SPSAMPLE_HD inline void its_counted(const Row& row, int64_t size, DrawStream& draws, Chosen& chosen, int64_t* counts) {
    for (int64_t draw = 0; draw < size; ++draw) {
        const int64_t known = chosen.count;
        const int64_t number = chosen.add(its_draw(row, draws, draw));
        counts[number] = number < known ? counts[number] + 1 : 1;
    }
}

// Whether at most `size` positions have a positive numerator. Stops as soon as there are more.
template <class Row>
SPSAMPLE_HD inline bool support_within(const Row& row, int64_t size) {
    int64_t support = 0;
    for (int64_t p = row.next_positive(0); p < row.count && support <= size; p = row.next_positive(p + 1)) ++support;
    return support <= size;
}

// --- entry law ----------------------------------------------------------------------------------------------------------

// The frontier of one batch: `count` rows of A; every entry of row number i has the numerator q(i).
template <class Index>
struct Frontier {
    CsrView<Index> A;
    const Index* rows;
    const uint64_t* numerators;  // `count` elements, or null where all are 1
    int64_t count;

    SPSAMPLE_HD uint64_t q(int64_t i) const { return numerators ? numerators[i] : 1; }
    SPSAMPLE_HD int64_t degree(int64_t i) const { return A.degree(rows[i]); }
    SPSAMPLE_HD const Index* columns(int64_t i) const { return A.indices + A.begin(rows[i]); }
};

// Number of stored entries of the frontier's rows. O(count).
template <class Index>
SPSAMPLE_HD inline int64_t frontier_entries(const Frontier<Index>& frontier) {
    int64_t entries = 0;
    for (int64_t i = 0; i < frontier.count; ++i) entries += frontier.degree(i);
    return entries;
}

// Inclusive prefix sums of the row totals t_i = q_i d_i into `inclusive` (`count` elements). O(count).
template <class Index>
SPSAMPLE_HD inline void frontier_totals(const Frontier<Index>& frontier, uint64_t* inclusive) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < frontier.count; ++i) {
        sum += frontier.q(i) * static_cast<uint64_t>(frontier.degree(i));
        inclusive[i] = sum;
    }
}

// Whether the frontier has at most `size` distinct columns of positive numerator. `found` (empty, room for
// min(size + 1, entries)) gets them in the order met, size + 1 of them where there are more. Reads entries until then.
template <class Index>
SPSAMPLE_HD inline bool support_within(const Frontier<Index>& frontier, int64_t size, Chosen& found) {
    for (int64_t i = 0; i < frontier.count; ++i) {
        if (frontier.q(i) == 0) continue;
        const Index* columns = frontier.columns(i);
        const int64_t degree = frontier.degree(i);
        for (int64_t e = 0; e < degree; ++e) {
            found.add(columns[e]);
            if (found.count > size) return false;
        }
    }
    return true;
}

// The column of unit x of [0, T): the row by upper bound, then entry number y div q. O(log count).
template <class Index>
SPSAMPLE_HD inline int64_t frontier_column(const Frontier<Index>& frontier, const PrefixRow& totals, uint64_t x) {
    const int64_t i = upper_bound(totals.inclusive, totals.count, x);
    return frontier.columns(i)[(x - totals.before(i)) / frontier.q(i)];
}

}  // namespace spsample
