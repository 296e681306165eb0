// The loops of a TreeSet (weight_tree.h), once for each instruction set. The file that includes this one defines
//   SPSAMPLE_LOOP         attributes of its functions: `always_inline`, and the instructions they may use
//   SPSAMPLE_LOOP_LAMBDA, SPSAMPLE_LOOP_MEMBER  the same for a lambda and a member
//   kernel::count_below   how many of 16 elements are below a number
//   kernel::Repeats       whether a draw repeats one before it, and which do not
//   kernel::is_among      whether a number is among others
//   kernel::kVectorBytes  the width of a register
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
    __builtin_memcpy(rest, weights + whole, static_cast<size_t>(count - whole) * sizeof(Real));
    body(rest, whole, kTreeLanes);
}

// As many integers as a register holds.
template <class Bits>
struct Register {
    static constexpr int kCount = kernel::kVectorBytes / static_cast<int>(sizeof(Bits));
    typedef Bits Vector __attribute__((vector_size(kernel::kVectorBytes)));
};

// Largest and smallest of the positive weights seen, as bits, and their number, lane by lane. One less than bits that are not positive
// is, unsigned, more than one less than any positive ones.
template <class Real>
struct RangeLanes {
    using Bits = decltype(ordered_bits(Real()));
    using Unsigned = std::make_unsigned_t<Bits>;
    using Vector = typename Register<Bits>::Vector;
    using UnsignedVector = typename Register<Unsigned>::Vector;
    static constexpr int kCount = Register<Bits>::kCount;

    Vector largest = {}, positive = {};
    UnsignedVector smallest = ~UnsignedVector{};

    SPSAMPLE_LOOP_MEMBER void add(const Real* weights) {
        Vector bits;
        __builtin_memcpy(&bits, weights, sizeof bits);
        const UnsignedVector less = reinterpret_cast<UnsignedVector>(bits) - Unsigned(1);
        largest = bits > largest ? bits : largest;
        smallest = less < smallest ? less : smallest;
        positive -= bits > Vector{};
    }
};

template <class Real>
SPSAMPLE_LOOP ExponentRange range_loop(const Real* weights, int64_t count) {
    using Lanes = RangeLanes<Real>;
    Lanes lanes;
    int64_t e = 0;
    for (; e + Lanes::kCount <= count; e += Lanes::kCount) lanes.add(weights + e);
    if (e < count) {
        alignas(64) Real rest[Lanes::kCount] = {};
        __builtin_memcpy(rest, weights + e, static_cast<size_t>(count - e) * sizeof(Real));
        lanes.add(rest);
    }
    typename Lanes::Bits largest = 0;
    typename Lanes::Unsigned smallest = ~typename Lanes::Unsigned(0);
    int64_t positive = 0;
    for (int i = 0; i < Lanes::kCount; ++i) {
        largest = std::max<typename Lanes::Bits>(largest, lanes.largest[i]);
        smallest = std::min<typename Lanes::Unsigned>(smallest, lanes.smallest[i]);
        positive += lanes.positive[i];
    }
    if (positive == 0) return {kNoExponent, 2147483647, 0};
    return {exponent_of(largest), exponent_of(static_cast<typename Lanes::Bits>(smallest + 1)), positive};
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

// Prefix sums of the numerators of up to kSumsEvery weights, a multiple of 16, from `sum` on, cut; returns the last one. What an
// instruction set may do better.
struct PlainSums {
    template <bool Wide, class Real>
    SPSAMPLE_LOOP_MEMBER static uint64_t write(const Real* weights, int64_t count, double scale, uint64_t sum, uint32_t* out) {
        alignas(64) uint64_t numerators[kSumsEvery];
        numerators_loop<Wide>(weights, count, scale, numerators);
        return cut_sums_loop(numerators, count, sum, Wide ? kWideCut : 0, out);
    }
};

// The padding of level 0 repeats the total: no search is for more. At least one weight is positive: a sum of 0 stands for 2^32.
template <class Sums, class Real>
SPSAMPLE_LOOP uint64_t prefix_sums_loop(const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums) {
    const double scale = double_from_bits(static_cast<uint64_t>(1023 + shift) << 52);
    uint64_t sum = 0;
    for_stretches(weights, count, [&](const Real* some, int64_t first, int64_t number) SPSAMPLE_LOOP_LAMBDA {
        if (sums) {
            if (first % kSumsEvery == 0) sums[first / kSumsEvery] = sum;
            sum = Sums::template write<true>(some, number, scale, sum, level0 + first);
        } else {
            sum = Sums::template write<false>(some, number, scale, sum, level0 + first);
        }
    });
    return sum > 0 ? sum : kNarrowLimit;
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

// Bit l: whether the word of draw `draw` is rejected in lane l.
template <bool Wide>
SPSAMPLE_LOOP uint32_t rejected_lanes(const LaneWords* words, int draw, const uint64_t* totals, const uint64_t* rejected_below) {
    uint32_t rejected = 0;
    for (int lane = 0; lane < kTreeLanes; ++lane) {
        const uint64_t low = Wide ? wide_word(words[2 * draw][lane], words[2 * draw + 1][lane]) * totals[lane]
                                  : uint32_t(words[draw][lane] * static_cast<uint32_t>(totals[lane]));
        rejected |= uint32_t(low < rejected_below[lane]) << lane;
    }
    return rejected;
}

// Puts the words of later attempts in the place of rejected ones.
template <bool Wide>
SPSAMPLE_LOOP void replace_rejected(const TreeDraw& how, const TreeLanes& lanes, int draws, LaneWords* words) {
    uint64_t totals[kTreeLanes] = {}, rejected_below[kTreeLanes] = {};
    for (int lane = 0; lane < lanes.count; ++lane) {
        totals[lane] = lanes.row[lane]->total;
        rejected_below[lane] = lanes.row[lane]->rejected_below;
    }
    for (int draw = 0; draw < draws; ++draw) {
        for (uint32_t rest = rejected_lanes<Wide>(words, draw, totals, rejected_below); rest != 0; rest &= rest - 1) {
            const int lane = __builtin_ctz(rest);
            const uint64_t word = later_word<Wide>(how, lanes, lane, draw);
            words[Wide ? 2 * draw : draw][lane] = static_cast<uint32_t>(word);
            if (Wide) words[2 * draw + 1][lane] = static_cast<uint32_t>(word >> 32);
        }
    }
}

// Position of draw `draw` of a lane; `undecided` is set where the tree does not decide.
template <bool Wide, int Count>
SPSAMPLE_LOOP uint32_t draw_once(const LaneWords* words, int lane, int draw, uint64_t total, const Levels<Count>& levels, bool* undecided) {
    uint32_t y;
    if (Wide) {
        const unsigned __int128 word = wide_word(words[2 * draw][lane], words[2 * draw + 1][lane]);
        y = static_cast<uint32_t>(static_cast<uint64_t>(word * total >> 64) >> kWideCut);
    } else {
        y = static_cast<uint32_t>(words[draw][lane] * total >> 32) + 1;
    }
    const uint32_t position = find_loop(levels, y);
    *undecided |= Wide && levels.level[0][position] == y;
    return position;
}

// The first `size` draws are made without a branch on what comes out, and looked at afterwards: in most rows they are what is wanted.
template <bool Wide, bool Replace, int Count>
SPSAMPLE_LOOP void draw_lane_loop(
    const TreeDraw& how, const LaneWords* words, const uint32_t* trees, TreeLanes& lanes, int lane) {
    const ReadyRow& row = *lanes.row[lane];
    const Levels<Count> levels = levels_of<Count>(row, trees);
    uint32_t* const positions = lanes.of(lane, how);
    kernel::Repeats repeats;
    bool undecided = false;
    for (int draw = 0; draw < how.size; ++draw) {
        positions[draw] = draw_once<Wide>(words, lane, draw, row.total, levels, &undecided);
        if (!Replace) repeats.add(positions, draw);
    }
    int count = how.size, next = how.size;
    if (undecided) {
        count = next = 0;
    } else if (!Replace && repeats.any()) {
        count = repeats.keep_first(positions, how.size);
        for (const int draws = Wide ? how.wide_draws : how.narrow_draws; next < draws && count < how.size; ++next) {
            const uint32_t position = draw_once<Wide>(words, lane, next, row.total, levels, &undecided);
            if (undecided) break;
            positions[count] = position;
            count += kernel::is_among(positions, count, position) ? 0 : 1;
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
    replace_rejected<Wide>(how, lanes, draws, words);
    if (how.replace) {
        draw_each_lane<Wide, true>(how, words, trees, lanes);
    } else {
        draw_each_lane<Wide, false>(how, words, trees, lanes);
    }
}
