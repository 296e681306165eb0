// Memory of one thread for the draw laws, reused from row to row.
#pragma once

#include <cstdint>
#include <vector>

#include "spsample/its.h"

namespace spsample {

// Grows a vector to `size` elements and returns its memory; contents are not kept in any order that matters.
template <class T>
T* grown(std::vector<T>& memory, int64_t size) {
    if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size));
    return memory.data();
}

class DrawScratch {
public:
    // An empty `Chosen` with room for `limit` outcomes, written to `outcomes` (or to own memory where that is null).
    Chosen chosen(int64_t limit, int64_t* outcomes = nullptr) {
        const int64_t capacity = chosen_capacity(limit);
        Chosen result{outcomes ? outcomes : grown(outcomes_, limit), 0, {nullptr, nullptr, capacity}};
        if (capacity > 0) {
            result.index.keys = grown(keys_, capacity);
            result.index.values = grown(values_, capacity);
            result.index.clear();
        }
        return result;
    }

    // An empty `TakenOut` with room for `limit` positions.
    TakenOut taken_out(int64_t limit) {
        return {grown(positions_, limit), grown(start_, limit), grown(removed_, limit), 0};
    }

    // Room for inclusive prefix sums.
    uint64_t* prefix(int64_t count) { return grown(prefix_, count); }

private:
    std::vector<int64_t> outcomes_, keys_, values_, positions_;
    std::vector<uint64_t> start_, removed_, prefix_;
};

}  // namespace spsample
