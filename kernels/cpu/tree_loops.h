// The loops of a TreeSet (weight_tree.h), once for each instruction set. The file that includes this one defines
//   SPSAMPLE_LOOP         attributes of its functions: `always_inline`, and the instructions they may use
//   SPSAMPLE_LOOP_LAMBDA  the same for a lambda
//   kernel::count_below   how many of 16 elements are below a number
//   kernel::Repeats       whether a draw repeats one before it
//   kernel::philox_block  block `number` of all lanes, as words[0 .. 3][lane]
// No #pragma once: it is part of that file.

// Bits of weights as signed integers: positive weights are positive, and in their order.
SPSAMPLE_LOOP int32_t ordered_bits(float w) { return static_cast<int32_t>(float_bits(w)); }
SPSAMPLE_LOOP int64_t ordered_bits(double w) { return static_cast<int64_t>(double_bits(w)); }

SPSAMPLE_LOOP int32_t exponent_of(int32_t bits) { return decompose_bits(static_cast<uint32_t>(bits), 23, 126).exponent; }
SPSAMPLE_LOOP int32_t exponent_of(int64_t bits) { return decompose_bits(static_cast<uint64_t>(bits), 52, 1022).exponent; }

// Calls body(weights, first, count) for stretches of up to kSumsEvery weights, first the number of those before. count is a multiple of
// 16: the last block of a row is copied and filled up with zeros, so that no loop has a rest of single weights.
template <class Real, class Body>
SPSAMPLE_LOOP void for_stretches(const Real* weights, int64_t count, Body&& body) {
    const int64_t whole = count / kTreeLanes * kTreeLanes;
    for (int64_t first = 0; first < whole; first += kSumsEvery) body(weights + first, first, std::min(kSumsEvery, whole - first));
    if (whole == count) return;
    alignas(64) Real rest[kTreeLanes] = {};
    for (int64_t e = whole; e < count; ++e) rest[e - whole] = weights[e];
    body(rest, whole, kTreeLanes);
}

template <class Real>
SPSAMPLE_LOOP ExponentRange range_loop(const Real* weights, int64_t count) {
    using Bits = decltype(ordered_bits(Real()));
    constexpr Bits most = std::numeric_limits<Bits>::max();
    alignas(64) Bits largest[kTreeLanes], smallest[kTreeLanes];
    for (int i = 0; i < kTreeLanes; ++i) largest[i] = 0, smallest[i] = most;
    int64_t positive = 0;
    for_stretches(weights, count, [&](const Real* some, int64_t, int64_t number) SPSAMPLE_LOOP_LAMBDA {
        Bits here[kTreeLanes] = {};
        for (int64_t e = 0; e < number; e += kTreeLanes) {
            for (int i = 0; i < kTreeLanes; ++i) {
                const Bits bits = ordered_bits(some[e + i]);
                const Bits counted = bits > 0 ? bits : most;
                largest[i] = bits > largest[i] ? bits : largest[i];
                smallest[i] = counted < smallest[i] ? counted : smallest[i];
                here[i] += bits > 0 ? 1 : 0;
            }
        }
        for (int i = 0; i < kTreeLanes; ++i) positive += here[i];
    });
    if (positive == 0) return {kNoExponent, 2147483647, 0};
    const Bits high = *std::max_element(largest, largest + kTreeLanes);
    const Bits low = *std::min_element(smallest, smallest + kTreeLanes);
    return {exponent_of(high), exponent_of(low), positive};
}

// Numerators of `count` weights, a multiple of 16, below 2^32 (narrow) or 2^62 once scaled by 2^shift = scale. Adding 2^52 to a number
// below 2^51 rounds it to an integer, half to even, and leaves that in the low bits; a wide number is rounded as 2^32 high + low.
template <bool Wide, class Real>
SPSAMPLE_LOOP void numerators_loop(const Real* weights, int64_t count, double scale, uint64_t* numerators) {
    constexpr double upper = 4503599627370496.0, middle = 6755399441055744.0;  // 2^52, 2^52 + 2^51
    for (int64_t first = 0; first < count; first += kTreeLanes) {
        for (int i = 0; i < kTreeLanes; ++i) {
            const Real weight = weights[first + i];
            const double x = static_cast<double>(weight) * scale;
            uint64_t numerator;
            if (Wide) {
                const double high = x * 0x1p-32 + upper;
                const double low = x - (high - upper) * 0x1p32;
                numerator = (double_bits(high) << 32) + (double_bits(low + middle) - double_bits(middle));
            } else {
                numerator = double_bits(x + upper) - double_bits(upper);
            }
            numerators[first + i] = numerator + (numerator == 0 && ordered_bits(weight) > 0 ? 1 : 0);
        }
    }
}

// Writes prefix sums from `sum` on, cut; returns the last one. count: a multiple of 16.
SPSAMPLE_LOOP uint64_t cut_sums_loop(const uint64_t* numerators, int64_t count, uint64_t sum, int cut, uint32_t* out) {
    for (int64_t first = 0; first < count; first += kTreeLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kTreeLanes; ++i) {
            sum += numerators[first + i];
            out[first + i] = static_cast<uint32_t>(sum >> cut);
        }
    }
    return sum;
}

// The padding of level 0 repeats the total: no search is for more.
template <class Real>
SPSAMPLE_LOOP uint64_t prefix_sums_loop(const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums) {
    alignas(64) uint64_t numerators[kSumsEvery];
    const double scale = double_from_bits(static_cast<uint64_t>(1023 + shift) << 52);
    uint64_t sum = 0;
    for_stretches(weights, count, [&](const Real* some, int64_t first, int64_t number) SPSAMPLE_LOOP_LAMBDA {
        if (sums) {
            if (first % kSumsEvery == 0) sums[first / kSumsEvery] = sum;
            numerators_loop<true>(some, number, scale, numerators);
            sum = cut_sums_loop(numerators, number, sum, kWideCut, level0 + first);
        } else {
            numerators_loop<false>(some, number, scale, numerators);
            sum = cut_sums_loop(numerators, number, sum, 0, level0 + first);
        }
    });
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

// Whether the position of draw `draw` is among those before it.
SPSAMPLE_LOOP bool is_among(const uint32_t* positions, int count, uint32_t position) {
    bool found = false;
    for (int j = 0; j < count; ++j) found |= positions[j] == position;
    return found;
}

// What a lane's draws are made of.
template <int Count>
struct LaneRow {
    const LaneWords* words;
    int lane;
    uint64_t total;
    uint64_t rejected_below;
    Levels<Count> levels;
};

// Position of a draw, as if its word were not rejected; `doubtful` is set where it is, or where the tree does not decide.
template <bool Wide, int Count>
SPSAMPLE_LOOP uint32_t draw_once(const LaneRow<Count>& row, int draw, bool* doubtful) {
    uint64_t low;
    const uint64_t x = product<Wide>(row.words, row.lane, draw, row.total, &low);
    const uint32_t y = static_cast<uint32_t>(Wide ? x >> kWideCut : x + 1);
    const uint32_t position = find_loop(row.levels, y);
    *doubtful = (low < row.rejected_below) | (Wide && row.levels.level[0][position] == y);
    return position;
}

// The same, exactly, of a doubtful draw; false where the tree does not decide.
template <bool Wide, int Count>
SPSAMPLE_LOOP bool draw_again(const TreeDraw& how, const LaneRow<Count>& row, const TreeLanes& lanes, int draw, uint32_t* position) {
    const uint64_t x = redrawn(how, lanes, row.lane, draw);
    const uint32_t y = static_cast<uint32_t>(Wide ? x >> kWideCut : x + 1);
    *position = find_loop(row.levels, y);
    return !(Wide && row.levels.level[0][*position] == y);
}

// The first `size` draws are made without a branch on what comes out, and looked at afterwards: in most rows nothing is wrong with them.
template <bool Wide, bool Replace, int Count>
SPSAMPLE_LOOP void draw_lane_loop(
    const TreeDraw& how, const LaneWords* words, const uint32_t* trees, TreeLanes& lanes, int lane) {
    const ReadyRow& ready = *lanes.row[lane];
    const LaneRow<Count> row{words, lane, ready.total, ready.rejected_below, levels_of<Count>(ready, trees)};
    uint32_t* const positions = lanes.positions[lane];
    kernel::Repeats repeats;
    uint64_t all_doubtful = 0;
    for (int draw = 0; draw < how.size; ++draw) {
        bool doubtful;
        positions[draw] = draw_once<Wide>(row, draw, &doubtful);
        all_doubtful |= uint64_t(doubtful) << draw;
        if (!Replace) repeats.add(positions, draw);
    }
    lanes.found[lane] = lanes.next[lane] = 0;
    for (uint64_t rest = all_doubtful; rest != 0; rest &= rest - 1) {
        const int draw = __builtin_ctzll(rest);
        if (!draw_again<Wide>(how, row, lanes, draw, positions + draw)) return;
    }
    int count = how.size, next = how.size;
    if (!Replace && (repeats.any() || all_doubtful)) {
        count = 0;
        for (int draw = 0; draw < how.size; ++draw) {
            const uint32_t position = positions[draw];
            if (!is_among(positions, count, position)) positions[count++] = position;
        }
        const int draws = Wide ? how.wide_draws : how.narrow_draws;
        for (; next < draws && count < how.size; ++next) {
            bool doubtful;
            uint32_t position = draw_once<Wide>(row, next, &doubtful);
            if (doubtful && !draw_again<Wide>(how, row, lanes, next, &position)) break;
            if (!is_among(positions, count, position)) positions[count++] = position;
        }
    }
    lanes.found[lane] = count;
    lanes.next[lane] = next;
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
