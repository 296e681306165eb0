// The loops of a TreeSet (row_law_tree.h), once for each instruction set. The file that includes this one defines
//   SPSAMPLE_LOOP         attributes of its functions: `always_inline`, and the instructions they may use
//   SPSAMPLE_LOOP_LAMBDA, SPSAMPLE_LOOP_MEMBER  the same for a lambda and a member
//   kernel::kVectorBytes  the width of a register
//   kernel::Bound, kernel::count_below   how many of 16 elements are below a number
//   kernel::Mask, kernel::equal          whether the first one that is not below is equal to it: not 0
//   kernel::Distinct      the distinct positions of a lane
//   kernel::repeats       which positions are equal to one before them
//   kernel::philox        the words drawn for the counters of the first `count` lanes, at least
// and may have better loops than PlainSums and PlainUnits.
// No #pragma once: it is part of that file.

// Bits of weights as signed integers: positive weights are positive, and in their order.
SPSAMPLE_LOOP int32_t ordered_bits(float w) { return static_cast<int32_t>(float_bits(w)); }
SPSAMPLE_LOOP int64_t ordered_bits(double w) { return static_cast<int64_t>(double_bits(w)); }

SPSAMPLE_LOOP int32_t exponent_of(int32_t bits) { return decompose_bits(static_cast<uint32_t>(bits), 23, 126).exponent; }
SPSAMPLE_LOOP int32_t exponent_of(int64_t bits) { return decompose_bits(static_cast<uint64_t>(bits), 52, 1022).exponent; }

// Calls body(weights, first, count) for stretches of up to kSumsEvery weights, first the number of those before. count is a
// multiple of 16: the last block of a row is copied and filled up with zeros, so that no loop has a rest of single weights.
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

// Largest and smallest of the positive weights seen, as bits, and their number, lane by lane. One less than bits that are
// not positive is, unsigned, more than one less than any positive ones.
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

// Numerators of `count` weights, a multiple of 16, below 2^32 (narrow) or 2^62 once scaled by 2^shift = scale. Adding 2^52
// to a number below 2^51 rounds it to an integer, half to even, and leaves that in the low bits; a wide number is rounded
// as 2^32 high + low.
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

// Prefix sums of the numerators of up to kSumsEvery weights, a multiple of 16, from `sum` on, cut; returns the last one.
// What an instruction set may do better.
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
SPSAMPLE_LOOP uint64_t prefix_sums_loop(
    const Real* weights, int64_t count, int64_t shift, uint32_t* level0, uint64_t* sums, const PrefetchRange& ahead) {
    const double scale = double_from_bits(static_cast<uint64_t>(1023 + shift) << 52);
    uint64_t sum = 0;
    for_stretches(weights, count, [&](const Real* some, int64_t first, int64_t number) SPSAMPLE_LOOP_LAMBDA {
        ahead.prefetch(first, number);
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
constexpr int kDrawsTogether = 5;   // searches of a lane that overlap

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

// First position whose element is not below a number.
template <int Count>
SPSAMPLE_LOOP uint32_t find_loop(const Levels<Count>& levels, kernel::Bound bound) {
    uint32_t block = 0;
#pragma GCC unroll 4
    for (int l = (Count > 0 ? Count : levels.count) - 1; l >= 0; --l) {
        block = block * kTreeLanes + kernel::count_below(levels.level[l] + size_t(block) * kTreeLanes, bound);
    }
    return block;
}

// The same for `Number` units, every 16th, level by level, so that the searches overlap. Whether one of them is an element.
template <bool Wide, int Number, int Count>
SPSAMPLE_LOOP kernel::Mask find_some(const Levels<Count>& levels, const uint32_t* units, uint32_t* positions) {
    size_t blocks[Number] = {};
    kernel::Mask equal = 0;
#pragma GCC unroll 4
    for (int l = (Count > 0 ? Count : levels.count) - 1; l >= 0; --l) {
#pragma GCC unroll 16
        for (int i = 0; i < Number; ++i) {
            const kernel::Bound bound = kernel::bound(units + i * kTreeLanes);
            const uint32_t* const block = levels.level[l] + blocks[i] * kTreeLanes;
            const uint32_t below = kernel::count_below(block, bound);
            if (Wide && l == 0) equal |= kernel::equal(block, below, bound, units[i * kTreeLanes]);
            blocks[i] = blocks[i] * kTreeLanes + below;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < Number; ++i) positions[i * kTreeLanes] = static_cast<uint32_t>(blocks[i]);
    return equal;
}

// What the rows of a group are drawn by.
struct LaneTotals {
    alignas(64) uint64_t totals[kTreeLanes];
    alignas(64) uint64_t rejected_below[kTreeLanes];
};

// What is looked for in a tree: the first element not below it, or for wide rows the first above it (where that is decided).
template <bool Wide>
SPSAMPLE_LOOP uint32_t unit_of(uint64_t word, uint64_t total) {
    if (!Wide) return static_cast<uint32_t>(word * total >> 32) + 1;
    return static_cast<uint32_t>(static_cast<uint64_t>(static_cast<unsigned __int128>(word) * total >> 64) >> kWideCut);
}

// The units of one draw of all lanes, from its words. Bit l of the result: whether lane l's word is rejected. What an
// instruction set may do better.
struct PlainUnits {
    template <bool Wide>
    SPSAMPLE_LOOP_MEMBER static uint32_t write(const LaneWords* words, const LaneTotals& lanes, uint32_t* units) {
        uint32_t rejected = 0;
        for (int lane = 0; lane < kTreeLanes; ++lane) {
            const uint64_t word = Wide ? wide_word(words[0][lane], words[1][lane]) : words[0][lane];
            const uint64_t low = Wide ? word * lanes.totals[lane] : static_cast<uint32_t>(word * lanes.totals[lane]);
            units[lane] = unit_of<Wide>(word, lanes.totals[lane]);
            rejected |= uint32_t(low < lanes.rejected_below[lane]) << lane;
        }
        return rejected;
    }
};

// The draws of a group, as units; rejected ones have none yet.
struct LaneUnits {
    LaneTotals all;
    LaneCounters counters;
    int draws = 0;
    uint32_t rejected[kMostLaneDraws];
    alignas(64) uint32_t units[kMostLaneDraws][kTreeLanes];
};

// Makes `blocks` blocks of draws more, up to 4 size.
template <bool Wide, class Units>
SPSAMPLE_LOOP void more_units(const TreeDraw& how, const TreeLanes& lanes, int blocks, LaneUnits& drawn) {
    constexpr int in_block = Wide ? 2 : 4;
    for (; blocks > 0; --blocks) {
        alignas(64) LaneWords words[4];
        std::fill_n(drawn.counters.words[2], kTreeLanes, static_cast<uint32_t>(drawn.draws / in_block));
        kernel::philox(drawn.counters, how, lanes.count, words);
        const int stop = std::min(drawn.draws + in_block, kRoundDraws * how.size);
        for (int word = 0; drawn.draws < stop; ++drawn.draws, word += 4 / in_block) {
            drawn.rejected[drawn.draws] = Units::template write<Wide>(words + word, drawn.all, drawn.units[drawn.draws]);
        }
    }
}

// The unit of a draw whose words before `attempt` were rejected.
template <bool Wide>
SPSAMPLE_LOOP uint32_t later_unit(const TreeDraw& how, const TreeLanes& lanes, int lane, int draw, uint32_t attempt) {
    return unit_of<Wide>(later_word<Wide>(how, lanes, lane, draw, attempt), lanes.row[lane]->total);
}

// The units of `count` rejected draws of any lanes, up to 16, from their second words: which[i] = 16 draw + lane.
template <bool Wide>
SPSAMPLE_LOOP void second_units(const TreeDraw& how, const TreeLanes& lanes, const int* which, int count, LaneUnits& drawn) {
    LaneCounters counters{};
    for (int i = 0; i < count; ++i) {
        const int lane = which[i] % kTreeLanes, draw = which[i] / kTreeLanes;
        counters.words[0][i] = drawn.counters.words[0][lane];
        counters.words[1][i] = drawn.counters.words[1][lane] | 1u << 24;
        counters.words[2][i] = static_cast<uint32_t>(Wide ? draw / 2 : draw / 4);
        counters.words[3][i] = drawn.counters.words[3][lane];
    }
    alignas(64) LaneWords words[4];
    kernel::philox(counters, how, count, words);
    for (int i = 0; i < count; ++i) {
        const int lane = which[i] % kTreeLanes, draw = which[i] / kTreeLanes;
        const uint64_t total = drawn.all.totals[lane];
        const uint64_t word = Wide ? wide_word(words[draw % 2 * 2][i], words[draw % 2 * 2 + 1][i]) : words[draw % 4][i];
        const uint64_t low = Wide ? word * total : static_cast<uint32_t>(word * total);
        const bool rejected = low < drawn.all.rejected_below[lane];
        drawn.units[draw][lane] = rejected ? later_unit<Wide>(how, lanes, lane, draw, 2) : unit_of<Wide>(word, total);
    }
}

// Those of all that were rejected of draws first .. end - 1, for a set of lanes.
template <bool Wide>
SPSAMPLE_LOOP void accept_units(const TreeDraw& how, const TreeLanes& lanes, int first, int end, uint32_t set, LaneUnits& drawn) {
    int which[2 * kTreeLanes];
    int count = 0;
    for (int draw = first; draw < end; ++draw) {
        for (uint32_t rest = drawn.rejected[draw] & set; rest != 0; rest &= rest - 1) {
            which[count++] = draw * kTreeLanes + __builtin_ctz(rest);
        }
        if (count < kTreeLanes) continue;
        second_units<Wide>(how, lanes, which, kTreeLanes, drawn);
        count -= kTreeLanes;
        std::copy_n(which + kTreeLanes, kTreeLanes, which);
    }
    if (count > 0) second_units<Wide>(how, lanes, which, count, drawn);
}

// The units of draws 0 .. size - 1, and of the rest of their last block.
template <bool Wide, class Units>
SPSAMPLE_LOOP void first_units(const TreeDraw& how, const TreeLanes& lanes, LaneUnits& drawn) {
    drawn.all = {};
    drawn.counters = {};
    for (int lane = 0; lane < lanes.count; ++lane) {
        const ReadyRow& row = *lanes.row[lane];
        drawn.all.totals[lane] = row.total;
        drawn.all.rejected_below[lane] = row.rejected_below;
        drawn.counters.words[0][lane] = static_cast<uint32_t>(row.vertex);
        drawn.counters.words[1][lane] = static_cast<uint32_t>(row.vertex >> 32) | how.hop << 16;
        drawn.counters.words[3][lane] = lanes.batch_id[lane];
    }
    more_units<Wide, Units>(how, lanes, Wide ? (how.size + 1) / 2 : (how.size + 3) / 4, drawn);
    accept_units<Wide>(how, lanes, 0, how.size, (1u << kTreeLanes) - 1, drawn);
}

// Draws 0 .. size - 1 of lanes first .. end - 1, which share a row, whatever comes out. Size: the fanout where it is known to the
// compiler, else 0.
template <bool Wide, int Size, int Count>
SPSAMPLE_LOOP void draw_row_loop(
    const TreeDraw& how, const LaneUnits& drawn, const Levels<Count>& levels, TreeLanes& lanes, int first, int end) {
    const int size = Size > 0 ? Size : how.size;
    for (int lane = first; lane < end; ++lane) {
        int draw = 0;
        kernel::Mask undecided = 0;
        for (; draw + kDrawsTogether <= size; draw += kDrawsTogether) {
            undecided |= find_some<Wide, kDrawsTogether>(levels, &drawn.units[draw][lane], &lanes.positions[draw][lane]);
        }
        for (; draw < size; ++draw) {
            undecided |= find_some<Wide, 1>(levels, &drawn.units[draw][lane], &lanes.positions[draw][lane]);
        }
        lanes.found[lane] = lanes.next[lane] = undecided ? 0 : size;
    }
}

// Keeps the first of equal positions of a lane, and draws on until there are `size`, 4 size draws are made, or one is undecided.
template <bool Wide, class Units, int Count>
SPSAMPLE_LOOP void draw_on_loop(
    const TreeDraw& how, const Levels<Count>& levels, const uint32_t* repeated, LaneUnits& drawn, TreeLanes& lanes, int lane) {
    const uint32_t* const positions = &lanes.positions[0][lane];
    kernel::Distinct distinct(&lanes.positions[0][lane]);
    for (int draw = 0; draw < how.size; ++draw) distinct.add_known(positions[draw * kTreeLanes], repeated[draw] >> lane & 1);
    int next = how.size;
    for (; distinct.count < how.size && next < kRoundDraws * how.size; ++next) {
        if (next == drawn.draws) more_units<Wide, Units>(how, lanes, 2, drawn);
        uint32_t unit = drawn.units[next][lane];
        if (drawn.rejected[next] >> lane & 1) unit = later_unit<Wide>(how, lanes, lane, next, 1);
        const uint32_t position = find_loop(levels, kernel::bound(&unit));
        if (Wide && levels.level[0][position] == unit) break;
        distinct.add(position);
    }
    lanes.found[lane] = distinct.count;
    lanes.next[lane] = next;
}

// The lanes of a group that have repeats, one by one.
template <bool Wide, class Units>
SPSAMPLE_LOOP void draw_on_each(const TreeDraw& how, const uint32_t* trees, LaneUnits& drawn, TreeLanes& lanes) {
    uint32_t repeated[kMostTreeDraws];
    for (uint32_t rest = kernel::repeats(lanes.positions, 0, how.size, repeated); rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        if (lane >= lanes.count) return;
        if (lanes.found[lane] == 0) continue;  // undecided
        const ReadyRow& row = *lanes.row[lane];
        switch (row.levels) {
            case 1: draw_on_loop<Wide, Units>(how, levels_of<1>(row, trees), repeated, drawn, lanes, lane); break;
            case 2: draw_on_loop<Wide, Units>(how, levels_of<2>(row, trees), repeated, drawn, lanes, lane); break;
            default: draw_on_loop<Wide, Units>(how, levels_of<0>(row, trees), repeated, drawn, lanes, lane); break;
        }
    }
}

// All lanes make `size` draws, without a branch on what comes out.
template <bool Wide, int Size>
SPSAMPLE_LOOP void draw_rows_loop(const TreeDraw& how, const uint32_t* trees, const LaneUnits& drawn, TreeLanes& lanes) {
    for (int lane = 0, end; lane < lanes.count; lane = end) {
        const ReadyRow& row = *lanes.row[lane];
        for (end = lane + 1; end < lanes.count && lanes.row[end] == &row;) ++end;
        switch (row.levels) {
            case 1: draw_row_loop<Wide, Size>(how, drawn, levels_of<1>(row, trees), lanes, lane, end); break;
            case 2: draw_row_loop<Wide, Size>(how, drawn, levels_of<2>(row, trees), lanes, lane, end); break;
            case 3: draw_row_loop<Wide, Size>(how, drawn, levels_of<3>(row, trees), lanes, lane, end); break;
            default: draw_row_loop<Wide, Size>(how, drawn, levels_of<0>(row, trees), lanes, lane, end); break;
        }
    }
}

// Those with repeats, which in most groups are few, draw on then.
template <bool Wide, class Units>
SPSAMPLE_LOOP void draw_lanes_loop(const TreeDraw& how, const uint32_t* trees, TreeLanes& lanes) {
    LaneUnits drawn;
    first_units<Wide, Units>(how, lanes, drawn);
    if constexpr (kernel::kOwnLoopOfUsualFanouts) {
        switch (how.size) {
            case 5: draw_rows_loop<Wide, 5>(how, trees, drawn, lanes); break;
            case 10: draw_rows_loop<Wide, 10>(how, trees, drawn, lanes); break;
            case 15: draw_rows_loop<Wide, 15>(how, trees, drawn, lanes); break;
            default: draw_rows_loop<Wide, 0>(how, trees, drawn, lanes); break;
        }
    } else {
        draw_rows_loop<Wide, 0>(how, trees, drawn, lanes);
    }
    if (!how.replace) draw_on_each<Wide, Units>(how, trees, drawn, lanes);
}
