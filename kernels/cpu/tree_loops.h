// The loops of a TreeSet (weight_tree.h), once for each instruction set. The file that includes this one defines
//   SPSAMPLE_LOOP         attributes of its functions: `always_inline`, and the instructions they may use
//   kernel::count_below   how many of 16 elements are below a number
//   kernel::philox_block  block `number` of all lanes, as words[0 .. 3][lane]
// No #pragma once: it is part of that file.

// Bits of weights as signed integers: positive weights are positive, and in their order.
SPSAMPLE_LOOP int32_t ordered_bits(float w) { return static_cast<int32_t>(float_bits(w)); }
SPSAMPLE_LOOP int64_t ordered_bits(double w) { return static_cast<int64_t>(double_bits(w)); }

SPSAMPLE_LOOP int32_t exponent_of(int32_t bits) { return decompose_bits(static_cast<uint32_t>(bits), 23, 126).exponent; }
SPSAMPLE_LOOP int32_t exponent_of(int64_t bits) { return decompose_bits(static_cast<uint64_t>(bits), 52, 1022).exponent; }

template <class Real>
SPSAMPLE_LOOP ExponentRange range_loop(const Real* weights, int64_t count) {
    using Bits = decltype(ordered_bits(Real()));
    constexpr Bits most = std::numeric_limits<Bits>::max();
    Bits largest = 0, smallest = most, positive = 0;
    int64_t all_positive = 0;
    for (int64_t begin = 0; begin < count; begin += 1 << 20) {  // `positive` does not overflow
        const int64_t end = std::min<int64_t>(count, begin + (1 << 20));
        for (int64_t e = begin; e < end; ++e) {
            const Bits bits = ordered_bits(weights[e]);
            largest = bits > largest ? bits : largest;
            const Bits counted = bits > 0 ? bits : most;
            smallest = counted < smallest ? counted : smallest;
            positive += bits > 0 ? 1 : 0;
        }
        all_positive += positive;
        positive = 0;
    }
    if (all_positive == 0) return {kNoExponent, 2147483647, 0};
    return {exponent_of(largest), exponent_of(smallest), all_positive};
}

// Numerators of up to kSumsEvery weights below 2^32 (narrow) or 2^62 once scaled by 2^shift = scale. Adding 2^52 to a number below
// 2^51 rounds it to an integer, half to even, and leaves that in the low bits; a wide number is rounded as 2^32 high + low.
template <bool Wide, class Real>
SPSAMPLE_LOOP void numerators_loop(const Real* weights, int64_t count, double scale, uint64_t* numerators) {
    constexpr double upper = 4503599627370496.0, middle = 6755399441055744.0;  // 2^52, 2^52 + 2^51
    for (int64_t e = 0; e < count; ++e) {
        const double x = static_cast<double>(weights[e]) * scale;
        uint64_t numerator;
        if (Wide) {
            const double high = x * 0x1p-32 + upper;
            const double low = x - (high - upper) * 0x1p32;
            numerator = (double_bits(high) << 32) + (double_bits(low + middle) - double_bits(middle));
        } else {
            numerator = double_bits(x + upper) - double_bits(upper);
        }
        numerators[e] = numerator + (numerator == 0 && ordered_bits(weights[e]) > 0 ? 1 : 0);
    }
}

// Writes prefix sums from `sum` on, cut; returns the last one.
SPSAMPLE_LOOP uint64_t cut_sums_loop(const uint64_t* numerators, int64_t count, uint64_t sum, int cut, uint32_t* out) {
    for (int64_t e = 0; e < count; ++e) {
        sum += numerators[e];
        out[e] = static_cast<uint32_t>(sum >> cut);
    }
    return sum;
}

template <class Real>
SPSAMPLE_LOOP uint64_t prefix_sums_loop(const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums) {
    alignas(64) uint64_t numerators[kSumsEvery];
    const double scale = double_from_bits(static_cast<uint64_t>(1023 + shift) << 52);
    uint64_t sum = 0;
    for (int64_t begin = 0; begin < count; begin += kSumsEvery) {
        const int64_t some = std::min(kSumsEvery, count - begin);
        if (sums) {
            *sums++ = sum;
            numerators_loop<true>(weights + begin, some, scale, numerators);
            sum = cut_sums_loop(numerators, some, sum, kWideCut, level0 + begin);
        } else {
            numerators_loop<false>(weights + begin, some, scale, numerators);
            sum = cut_sums_loop(numerators, some, sum, 0, level0 + begin);
        }
    }
    for (int64_t e = count; e % kTreeLanes != 0; ++e) level0[e] = kPadding;
    return sum;
}

// --- draws ------------------------------------------------------------------------------------------------------------------

constexpr int kMostTreeLevels = 8;  // 16^8 = 2^32 entries

// The levels of a tree, where there are `Count`: 1, 2 or 3, or 0 for any number.
template <int Count>
struct Levels {
    const uint32_t* level[Count > 0 ? Count : kMostTreeLevels];
    int count;
};

template <int Count>
SPSAMPLE_LOOP Levels<Count> levels_of(const ReadyRow& row, const uint32_t* trees) {
    Levels<Count> levels;
    levels.count = Count > 0 ? Count : row.levels;
    const uint32_t* level = trees + row.tree;
    int64_t blocks = row.degree;
    for (int l = 0; l < levels.count; ++l) {
        levels.level[l] = level;
        blocks = tree_blocks(blocks);
        level += blocks * kTreeLanes;
    }
    return levels;
}

// First position whose element is not below y.
template <int Count>
SPSAMPLE_LOOP uint32_t find_loop(const Levels<Count>& levels, uint32_t y) {
    uint32_t block = 0;
#pragma GCC unroll 4
    for (int l = (Count > 0 ? Count : levels.count) - 1; l >= 0; --l) {
        block = block * kTreeLanes + kernel::count_below(levels.level[l] + size_t(block) * kTreeLanes, y);
    }
    return block;
}

// The positions chosen from one row. A bit set of hashes tells most new ones without a look at the others.
struct ChosenFew {
    uint32_t* positions;
    int count;
    uint64_t hashes;
};

SPSAMPLE_LOOP void add_loop(ChosenFew& chosen, uint32_t position) {
    const uint64_t bit = uint64_t(1) << ((position * 0x9E3779B1u) >> 26);
    if (chosen.hashes & bit) {
        for (int j = 0; j < chosen.count; ++j) {
            if (chosen.positions[j] == position) return;
        }
    }
    chosen.hashes |= bit;
    chosen.positions[chosen.count++] = position;
}

using LaneWords = uint32_t[kTreeLanes];

// x of draw j, before any rejection, from the words of the lane; `low` are the product's low bits.
template <bool Wide>
SPSAMPLE_LOOP uint64_t product(const LaneWords* words, int lane, int draw, uint64_t total, uint64_t* low) {
    if (Wide) {
        const uint64_t word = wide_word(words[2 * draw][lane], words[2 * draw + 1][lane]);
        const unsigned __int128 wide = static_cast<unsigned __int128>(word) * total;
        *low = static_cast<uint64_t>(wide);
        return static_cast<uint64_t>(wide >> 64);
    }
    const uint64_t narrow = words[draw][lane] * total;
    *low = static_cast<uint32_t>(narrow);
    return narrow >> 32;
}

template <bool Wide, bool Replace, int Count>
SPSAMPLE_LOOP void draw_lane_loop(
    const TreeDraw& how, const LaneWords* words, const uint32_t* trees, TreeLanes& lanes, int lane) {
    const ReadyRow& row = *lanes.row[lane];
    const uint64_t total = row.total, rejected_below = row.rejected_below;
    const Levels<Count> levels = levels_of<Count>(row, trees);
    const int draws = Replace ? how.size : Wide ? how.wide_draws : how.narrow_draws;
    ChosenFew chosen{lanes.positions[lane], 0, 0};
    int draw = 0;
    for (; draw < draws && chosen.count < how.size; ++draw) {
        uint64_t low;
        uint64_t x = product<Wide>(words, lane, draw, total, &low);
        if (low < rejected_below) x = redrawn(how, lanes, lane, draw);
        const uint32_t y = static_cast<uint32_t>(Wide ? x >> kWideCut : x + 1);
        const uint32_t position = find_loop(levels, y);
        if (Wide && levels.level[0][position] == y) break;
        if (Replace) {
            chosen.positions[chosen.count++] = position;
        } else {
            add_loop(chosen, position);
        }
    }
    lanes.found[lane] = chosen.count;
    lanes.next[lane] = draw;
}

template <bool Wide, bool Replace>
SPSAMPLE_LOOP void draw_each_lane(const TreeDraw& how, const LaneWords* words, const uint32_t* trees, TreeLanes& lanes) {
    for (int lane = 0; lane < lanes.count; ++lane) {
        switch (lanes.row[lane]->levels) {
            case 1: draw_lane_loop<Wide, Replace, 1>(how, words, trees, lanes, lane); break;
            case 2: draw_lane_loop<Wide, Replace, 2>(how, words, trees, lanes, lane); break;
            case 3: draw_lane_loop<Wide, Replace, 3>(how, words, trees, lanes, lane); break;
            default: draw_lane_loop<Wide, Replace, 0>(how, words, trees, lanes, lane); break;
        }
    }
}

template <bool Wide>
SPSAMPLE_LOOP void draw_lanes_loop(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes) {
    alignas(64) uint32_t words[4 * kMostTreeDraws][kTreeLanes];
    const int draws = how.replace ? how.size : Wide ? how.wide_draws : how.narrow_draws;
    const int blocks = Wide ? (draws + 1) / 2 : (draws + 3) / 4;
    for (int block = 0; block < blocks; ++block) kernel::philox_block(how, lanes, block, words + 4 * block);
    if (how.replace) {
        draw_each_lane<Wide, true>(how, words, trees, lanes);
    } else {
        draw_each_lane<Wide, false>(how, words, trees, lanes);
    }
}
