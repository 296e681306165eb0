// Inverse transform sampling (ITS) over one row of integer probabilities, "the first s distinct" with redraws
// (docs/law.md, section 3). Serves the weighted row law and the column law. For host and device.
#pragma once

#include "spsample/chosen.h"
#include "spsample/philox.h"

namespace spsample {

// First position whose element exceeds x; `count` where none does. values: not descending. O(log count).
SPSAMPLE_HD inline int64_t upper_bound(const uint64_t* values, int64_t count, uint64_t x) {
    int64_t first = 0;
    while (count > 0) {
        const int64_t half = count / 2;
        if (values[first + half] <= x) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

// A row as inclusive prefix sums of its numerators: `count` elements, not descending. total = the last one, 0 where empty.
// What draws from rows is a template of the kind of row, which has these members.
struct PrefixRow {
    const uint64_t* inclusive;
    int64_t count;

    SPSAMPLE_HD uint64_t total() const { return count > 0 ? inclusive[count - 1] : 0; }
    SPSAMPLE_HD uint64_t before(int64_t position) const { return position > 0 ? inclusive[position - 1] : 0; }
    SPSAMPLE_HD uint64_t numerator(int64_t position) const { return inclusive[position] - before(position); }
    // The position of unit x of [0, total).
    SPSAMPLE_HD int64_t position_of(uint64_t x) const { return upper_bound(inclusive, count, x); }
    // The first position of positive numerator from `position` on; `count` without one.
    SPSAMPLE_HD int64_t next_positive(int64_t position) const {
        while (position < count && numerator(position) == 0) ++position;
        return position;
    }
};

// The intervals of chosen positions, taken out of [0, T). Memory: `limit` elements each.
//   positions  the chosen positions, ascending
//   start      where the position's interval would begin if all intervals before it were taken out
//   removed    sum of numerators of this position and those before it
struct TakenOut {
    int64_t* positions;
    uint64_t* start;
    uint64_t* removed;
    int64_t count;

    // Takes out what is chosen by now. O(c log c).
    template <class Row>
    SPSAMPLE_HD void rebuild(const Row& row, const Chosen& chosen) {
        count = chosen.count;
        for (int64_t j = 0; j < count; ++j) positions[j] = chosen.outcomes[j];
        sort_ascending(positions, count);
        uint64_t sum = 0;
        for (int64_t j = 0; j < count; ++j) {
            start[j] = row.before(positions[j]) - sum;
            sum += row.numerator(positions[j]);
            removed[j] = sum;
        }
    }

    SPSAMPLE_HD uint64_t total() const { return count > 0 ? removed[count - 1] : 0; }

    // From [0, T - total()) to the x-th unit of [0, T) outside the intervals. O(log count).
    SPSAMPLE_HD uint64_t shift(uint64_t x) const {
        const int64_t passed = upper_bound(start, count, x);
        return passed > 0 ? x + removed[passed - 1] : x;
    }
};

// Position of one draw in the whole row.
template <class Row>
SPSAMPLE_HD inline int64_t its_draw(const Row& row, DrawStream& draws, int64_t draw) {
    return row.position_of(draws.below(draw, row.total()));
}

// The first `size` distinct positions of draws 0, 1, 2, ..., into `chosen`, which holds those of the draws before `first` (in the
// first round: first <= kRoundDraws size). The row must have more than `size` positions of positive numerator; taken must be empty, and both
// have room for `size`. False where a further round would pass the last draw number (`DrawStream::count`). Expected O(size) finds.
template <class Row>
SPSAMPLE_HD inline bool its_distinct(
    const Row& row, int64_t size, DrawStream& draws, Chosen& chosen, TakenOut& taken, int64_t first = 0) {
    const int64_t round = kRoundDraws * size;
    uint64_t rest = row.total();
    for (int64_t draw = first; chosen.count < size; ++draw) {
        if (draw > 0 && draw % round == 0) {
            if (draw + round > draws.count()) return false;
            taken.rebuild(row, chosen);
            rest = row.total() - taken.total();
        }
        chosen.add(row.position_of(taken.shift(draws.below(draw, rest))));
    }
    return true;
}

}  // namespace spsample
