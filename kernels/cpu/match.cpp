// The portable implementations of match.h, and the choice among instruction sets.
#include "match.h"

#include "simd.h"

namespace spsample {
namespace {

template <class Index>
int64_t likely(const KeyFilter& filter, const Index* row, int64_t count, uint32_t* offsets) {
    int64_t number = 0;
    for (int64_t e = 0; e < count; ++e) {
        offsets[number] = static_cast<uint32_t>(e);
        number += filter.test(static_cast<uint64_t>(row[e]));
    }
    return number;
}

// First offset in [first, count) whose entry is not below the column: steps that double, then bisection.
template <class Index>
int64_t gallop(const Index* row, int64_t first, int64_t count, Index column) {
    int64_t step = 1;
    while (first + step < count && row[first + step] < column) {
        first += step;
        step *= 2;
    }
    int64_t length = step < count - first ? step + 1 : count - first;
    while (length > 0) {
        const int64_t half = length / 2;
        const bool below = row[first + half] < column;
        first = below ? first + half + 1 : first;
        length = below ? length - half - 1 : half;
    }
    return first;
}

template <class Index>
int64_t search(const SortedColumns<Index>& set, const Index* row, int64_t count, const Matches<Index>& found) {
    int64_t number = 0, offset = 0;
    for (int64_t j = 0; j < set.count && offset < count; ++j) {
        offset = gallop(row, offset, count, set.columns[j]);
        number = add_equal(set, j, row, count, offset, found, number);
    }
    return number;
}

template <class Index>
constexpr MatchFunctions<Index> kMatchPortable{likely<Index>, shared_of<Index>, shared_places_of<Index>, search<Index>};

}  // namespace

template <>
const MatchFunctions<int32_t>& match_functions<int32_t>() {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return kMatchAvx512;
    if (&instruction_set() == &kAvx2) return kMatchAvx2;
#endif
    return kMatchPortable<int32_t>;
}

template <>
const MatchFunctions<int64_t>& match_functions<int64_t>() {
    return kMatchPortable<int64_t>;
}

}  // namespace spsample
