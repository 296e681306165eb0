// Rows of A made ready to be drawn from by weight: the inclusive prefix sums of their numerators as trees.
//
// A tree holds the prefix sums P of a row, cut to their high bits (P >> cut), in blocks of 16, one cache line each. Level 0
// is the sums, the last of them repeated to fill a block; element i of level l + 1 is the last one of block i of level l;
// the top level is one block. A search looks at one block per level. Narrow rows keep their sums whole (cut 0). Those of
// wide rows are cut to 32 bits; where that leaves a draw undecided (one in 2^27 / D or less, for D entries) its position is
// found by adding up numerators again.
//
// simd.h's instruction sets each have a `TreeSet`; all give equal bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "spsample/its.h"
#include "spsample/philox.h"
#include "spsample/quantisation.h"

namespace spsample {

constexpr int kTreeLanes = 16;           // rows drawn at a time, and elements of a block
constexpr int kMostTreeDraws = 64;       // a row of a larger fanout is drawn by itself
constexpr int kMostLaneDraws = kRoundDraws * kMostTreeDraws;  // draws of a lane, repeats among them: those of its first round
constexpr int kWideCut = kWideBits - 32;  // totals of wide rows are at most 2^kWideBits, elements of a tree have 32 bits
constexpr int64_t kSumsEvery = 256;      // entries from one exact prefix sum of a wide row to the next

// What there is to draw from a row, from the simplest.
enum class RowKind : uint8_t {
    kEmpty,   // no entry
    kTaken,   // all positive entries, no draw made
    kNarrow,  // from a tree, with 32-bit words
    kWide,    // from a tree, with 64-bit words
    kPlain,   // from prefix sums that are made for each draw: rows that trees have no room for
};

// One row of A made ready.
struct ReadyRow {
    int64_t vertex;           // that keys its draws
    int64_t begin;            // in A
    int64_t degree;
    uint64_t total;
    uint64_t rejected_below;  // 2^32 or 2^64 mod total: words whose product with the total has lower low bits are rejected
    int64_t tree;             // where its tree begins in the scratch; kTaken: its positions
    int64_t sums;             // kWide: where its exact sums begin, one before every kSumsEvery entries
    int32_t number;           // entries that are drawn
    int16_t shift;            // K of the row rule
    RowKind kind;
    uint8_t levels;
    bool near;                // whether all of its columns were asked for
};

// The blocks of a level, from the number of elements below it (the row's entries for level 0).
inline int64_t tree_blocks(int64_t elements) {
    return static_cast<int64_t>((static_cast<uint64_t>(elements) + kTreeLanes - 1) / kTreeLanes);
}

inline int tree_levels(int64_t degree) {
    int levels = 1;
    for (int64_t blocks = tree_blocks(degree); blocks > 1; blocks = tree_blocks(blocks)) ++levels;
    return levels;
}

// Elements of a row's tree.
inline int64_t tree_size(int64_t degree) {
    int64_t size = 0, blocks = degree;
    do {
        blocks = tree_blocks(blocks);
        size += blocks * kTreeLanes;
    } while (blocks > 1);
    return size;
}

// --- one row, exactly -------------------------------------------------------------------------------------------------------

// A `Row` of its.h on a tree. Call: weight(entry) is that of an entry of A.
template <class Call>
class TreeRow {
public:
    TreeRow(const ReadyRow& row, const Call& call, const uint32_t* tree, const uint64_t* sums)
        : row_(row), call_(call), tree_(tree + row.tree), sums_(sums + row.sums) {}

    uint64_t total() const { return row_.total; }
    uint64_t numerator(int64_t position) const { return quantize(call_.weight(row_.begin + position), row_.shift, 1); }

    uint64_t before(int64_t position) const {
        if (row_.kind == RowKind::kNarrow) return position > 0 ? tree_[position - 1] : 0;
        uint64_t sum = sums_[position / kSumsEvery];
        for (int64_t e = position / kSumsEvery * kSumsEvery; e < position; ++e) sum += numerator(e);
        return sum;
    }

    int64_t position_of(uint64_t x) const {
        if (row_.kind == RowKind::kNarrow) return first_not_below(static_cast<uint32_t>(x) + 1);
        const uint32_t y = static_cast<uint32_t>(x >> kWideCut);
        int64_t position = first_not_below(y);
        if (tree_[position] > y) return position;
        uint64_t sum = before(position);
        while ((sum += numerator(position)) <= x) ++position;
        return position;
    }

private:
    // First position whose cut prefix sum is not below y.
    int64_t first_not_below(uint32_t y) const {
        int64_t first = 0, count = row_.degree;
        while (count > 0) {
            const int64_t half = count / 2;
            if (tree_[first + half] < y) {
                first += half + 1;
                count -= half + 1;
            } else {
                count = half;
            }
        }
        return first;
    }

    const ReadyRow& row_;
    const Call& call_;
    const uint32_t* tree_;
    const uint64_t* sums_;
};

// --- rows in lanes ----------------------------------------------------------------------------------------------------------

// How all rows of a group are drawn.
struct TreeDraw {
    PhiloxKey key;
    RoundKeys keys;  // of `key`
    uint32_t hop;
    int size;  // 1 .. kMostTreeDraws
    bool replace;
};

// Up to kTreeLanes rows, all narrow or all wide, each for one batch, and what was drawn from them.
struct TreeLanes {
    alignas(64) uint32_t batch_id[kTreeLanes];  // low 32 bits
    alignas(64) uint32_t positions[kMostTreeDraws][kTreeLanes];
    const ReadyRow* row[kTreeLanes];
    int found[kTreeLanes];  // positions drawn; with fewer than `size`, draws go on from `next`
    int next[kTreeLanes];   // the first draw not made
    int count = 0;
};

// Memory that is asked for while the weights of a row are passed over, in step with them: `bytes` for each weight, from address
// `begin` on, or none.
struct PrefetchRange {
    uintptr_t begin = 0;
    int64_t bytes = 0;

    // Asks for the lines of weights first .. first + number - 1.
    void prefetch(int64_t first, int64_t number) const {
        constexpr uintptr_t line = 64;
        const uintptr_t end = begin + static_cast<uintptr_t>((first + number) * bytes);
        uintptr_t at = (begin + static_cast<uintptr_t>(first * bytes)) / line * line;
        for (; at < end; at += line) SPSAMPLE_PREFETCH_NEAR(reinterpret_cast<const void*>(at));
    }
};

template <class Real>
struct TreeFunctions {
    // Largest and smallest exponent of the positive weights, and their number. O(count).
    ExponentRange (*range)(const Real* weights, int64_t count);

    // Writes level 0 of the tree (cut 0 or kWideCut), filled up to whole blocks with the total, and for wide rows the exact
    // sums; returns the total. -1000 < shift < 1000. Prefetches `ahead` in step. O(count).
    uint64_t (*prefix_sums)(
        const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums, const PrefetchRange& ahead);
};

struct RankedLanes;  // row_law_ranks.h

struct TreeSet {
    TreeFunctions<float> of_float;
    TreeFunctions<double> of_double;

    // The weighted row law: draws 0, 1, 2, ... of each lane until it has `size` positions, the draws made in lanes are used
    // up, or one is undecided. O(draws log degree) per lane.
    void (*draw_narrow)(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes);
    void (*draw_wide)(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes);

    // The same for narrow rows without trees, which are searched by ranks.
    void (*draw_ranked)(const TreeDraw& how, const RankedLanes& rows, TreeLanes& lanes);

    template <class Real>
    const TreeFunctions<Real>& functions() const {
        if constexpr (std::is_same_v<Real, float>) {
            return of_float;
        } else {
            return of_double;
        }
    }
};

// That of the instruction set in use.
const TreeSet& tree_set();

// --- implementations --------------------------------------------------------------------------------------------------------

using LaneWords = uint32_t[kTreeLanes];

// Philox counters, one for each lane.
struct LaneCounters {
    alignas(64) LaneWords words[4];
};

// The word that a draw is made with where those of attempts before `attempt` were rejected: the first that is not, or the
// last there is.
template <bool Wide>
uint64_t later_word(const TreeDraw& how, const TreeLanes& lanes, int lane, int draw, uint32_t attempt) {
    const ReadyRow& row = *lanes.row[lane];
    const uint64_t vertex = static_cast<uint64_t>(row.vertex);
    const uint32_t high = static_cast<uint32_t>(vertex >> 32) | how.hop << 16;
    const uint32_t block = static_cast<uint32_t>(Wide ? draw / 2 : draw / 4);
    uint64_t word = 0, low = 0;
    for (; attempt <= kLastAttempt; ++attempt) {
        const PhiloxWords drawn =
            philox4x32_10({{static_cast<uint32_t>(vertex), high | attempt << 24, block, lanes.batch_id[lane]}}, how.key);
        word = Wide ? wide_word(drawn.w[2 * (draw % 2)], drawn.w[2 * (draw % 2) + 1]) : drawn.w[draw % 4];
        low = Wide ? word * row.total : static_cast<uint32_t>(word * row.total);
        if (low >= row.rejected_below) break;
    }
    return word;
}

extern const TreeSet kTreesPortable, kTreesAvx2, kTreesAvx512;

}  // namespace spsample
