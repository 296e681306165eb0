// The row law for one row (docs/law.md, section 3): which entries of the row are drawn, as positions within it.
// Source of the uniform draw: Floyd's algorithm, in Bentley and Floyd, A sample of brilliance, CACM 1987.
#pragma once

#include "spsample/its.h"

namespace spsample {

// How many entries a row of `support` drawable entries gives.
SPSAMPLE_HD inline int64_t drawn_count(int64_t support, int64_t size, bool replace) {
    if (replace) return support > 0 ? size : 0;
    return support < size ? support : size;
}

// `size` distinct positions of [0, degree), size < degree, into `chosen` (empty, room for `size`). O(size).
SPSAMPLE_HD inline void floyd(int64_t degree, int64_t size, DrawStream& draws, Chosen& chosen) {
    for (int64_t draw = 0; draw < size; ++draw) {
        const int64_t last = degree - size + draw;
        const int64_t position = static_cast<int64_t>(draws.below(draw, static_cast<uint64_t>(last) + 1));
        if (chosen.add(position) != draw) chosen.add(last);
    }
}

// `size` positions of [0, degree), repeats kept, into `positions`. O(size).
SPSAMPLE_HD inline void uniform_repeated(int64_t degree, int64_t size, DrawStream& draws, int64_t* positions) {
    for (int64_t draw = 0; draw < size; ++draw) {
        positions[draw] = static_cast<int64_t>(draws.below(draw, static_cast<uint64_t>(degree)));
    }
}

// Draws first .. size - 1 of a row by weight, repeats kept, into positions[first .. size - 1]. O(size) finds.
template <class Row>
SPSAMPLE_HD inline void its_repeated(const Row& row, int64_t size, DrawStream& draws, int64_t* positions, int64_t first = 0) {
    for (int64_t draw = first; draw < size; ++draw) positions[draw] = its_draw(row, draws, draw);
}

}  // namespace spsample
