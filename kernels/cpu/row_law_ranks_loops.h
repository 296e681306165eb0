// The loops of TreeSet::draw_ranked, once for each instruction set: a part of row_law_tree_loops.h, behind which it is included. Loops
// over lanes are for the compiler to make vectors of.
// No #pragma once.

using LaneNumbers = uint32_t[kTreeLanes];

// As many lanes as a register holds.
using SomeLanes = Register<uint32_t>::Vector;
constexpr int kSomeLanes = Register<uint32_t>::kCount;

SPSAMPLE_LOOP SomeLanes some_of(const uint32_t* lanes) {
    SomeLanes some;
    __builtin_memcpy(&some, lanes, sizeof some);
    return some;
}

// The last word of each lane's row before which the numerators add up to less than its unit: a binary search of all lanes in step.
SPSAMPLE_LOOP void find_words(const RankedLanes& rows, const uint32_t* units, uint32_t* words) {
    for (int lane = 0; lane < kTreeLanes; ++lane) words[lane] = 0;
    for (uint32_t step = rows.step; step > 0; step /= 2) {
        alignas(64) LaneNumbers next, ranks;
        for (int lane = 0; lane < kTreeLanes; lane += kSomeLanes) {
            const SomeLanes further = some_of(words + lane) + step, last = some_of(rows.last + lane);
            const SomeLanes nearer = further < last ? further : last;
            __builtin_memcpy(next + lane, &nearer, sizeof nearer);
        }
        for (int lane = 0; lane < kTreeLanes; ++lane) ranks[lane] = rows.words[lane][next[lane]].rank;
        for (int lane = 0; lane < kTreeLanes; lane += kSomeLanes) {
            const SomeLanes to = some_of(next + lane);
            const SomeLanes before = some_of(rows.outside + lane) * (to * 32 - some_of(rows.head + lane)) +
                                     some_of(rows.more + lane) * (some_of(ranks + lane) - some_of(rows.base + lane));
            const SomeLanes found = before < some_of(units + lane) ? to : some_of(words + lane);
            __builtin_memcpy(words + lane, &found, sizeof found);
        }
    }
}

// Some lanes' searches within a word each.
struct WordSearch {
    SomeLanes outside, more, unit, remaining;
    SomeLanes position = {}, sum = {};  // within the word; of the numerators before it

    // Goes past the next entries, `inside` of which are in the set, where their numerators do not reach the unit.
    SPSAMPLE_LOOP_MEMBER void pass(uint32_t entries, SomeLanes inside) {
        const SomeLanes next = sum + outside * entries + more * inside, behind = position + entries;
        const SomeLanes reached = next < unit ? behind : remaining;
        sum = reached < remaining ? next : sum;
        position = reached < remaining ? behind : position;
    }
};

// First position of each lane's row at which the numerators up to it are not below its unit.
SPSAMPLE_LOOP void find_ranked(const RankedLanes& rows, const uint32_t* units, uint32_t* positions) {
    alignas(64) LaneNumbers words, bits, ranks;
    find_words(rows, units, words);
    for (int lane = 0; lane < kTreeLanes; ++lane) {
        const RankedWord word = rows.words[lane][words[lane]];
        bits[lane] = word.bits;
        ranks[lane] = word.rank;
    }
    for (int lane = 0; lane < kTreeLanes; lane += kSomeLanes) {
        const SomeLanes zero = {}, number = some_of(words + lane), head = some_of(rows.head + lane);
        const SomeLanes start = number == zero ? zero : number * 32 - head;
        const SomeLanes rank = number == zero ? zero : some_of(ranks + lane) - some_of(rows.base + lane);
        const SomeLanes word = some_of(bits + lane) >> (number == zero ? head : zero);
        const SomeLanes twos = word - (word >> 1 & 0x55555555);  // how many bits each 2, 4, 8 of the word have
        const SomeLanes fours = (twos & 0x33333333) + (twos >> 2 & 0x33333333);
        const SomeLanes eights = (fours + (fours >> 4)) & 0x0F0F0F0F;
        WordSearch search{some_of(rows.outside + lane), some_of(rows.more + lane), {}, some_of(rows.degree + lane) - start};
        search.unit = some_of(units + lane) - search.outside * start - search.more * rank;
        search.pass(16, (eights + (eights >> 8)) & 0xFF);
        search.pass(8, eights >> search.position & 0xFF);
        search.pass(4, fours >> search.position & 0xF);
        search.pass(2, twos >> search.position & 3);
        search.pass(1, word >> search.position & 1);
        const SomeLanes found = start + search.position;
        __builtin_memcpy(positions + lane, &found, sizeof found);
    }
}

// One lane's row.
struct RankedLane {
    const RankedLanes& rows;
    int lane;
};

SPSAMPLE_LOOP uint32_t find_loop(const RankedLane& row, uint32_t unit) {
    const RankedLanes& rows = row.rows;
    const int lane = row.lane;
    const RankedWord* const words = rows.words[lane];
    const uint32_t outside = rows.outside[lane], more = rows.more[lane], head = rows.head[lane], base = rows.base[lane];
    uint32_t word = 0, first = 0;
    for (uint32_t count = rows.last[lane]; count > 0;) {  // the words word + 1 .. word + count are still to be told
        const uint32_t half = (count + 1) / 2, next = word + half;
        const bool is_before = outside * (next * 32 - head) + more * (words[next].rank - base) < unit;
        word = is_before ? next : word;
        count = is_before ? count - half : half - 1;
    }
    uint32_t bits = words[word].bits;
    if (word == 0) {
        bits >>= head;
    } else {
        first = word * 32 - head;
        unit -= outside * first + more * (words[word].rank - base);
    }
    const uint32_t remaining = rows.degree[lane] - first;
    uint32_t position = 0;
    for (uint32_t step = 16; step > 0; step /= 2) {
        const uint32_t next = position + step;
        const uint32_t inside = static_cast<uint32_t>(__builtin_popcount(bits & ((1u << next) - 1)));
        position = (next < remaining) & (outside * next + more * inside < unit) ? next : position;
    }
    return first + position;
}

SPSAMPLE_LOOP bool is_undecided(const RankedLane&, uint32_t, uint32_t) { return false; }

template <class Units>
SPSAMPLE_LOOP void draw_ranked_loop(const TreeDraw& how, const RankedLanes& rows, TreeLanes& lanes) {
    LaneUnits drawn;
    first_units<false, Units>(how, lanes, drawn);
    for (int draw = 0; draw < how.size; ++draw) find_ranked(rows, drawn.units[draw], lanes.positions[draw]);
    for (int lane = 0; lane < lanes.count; ++lane) lanes.found[lane] = lanes.next[lane] = how.size;
    if (how.replace) return;
    uint32_t repeated[kMostTreeDraws];
    const uint32_t of_lanes = (1u << lanes.count) - 1;
    for (uint32_t rest = kernel::repeats(lanes, how.size, repeated) & of_lanes; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        draw_on_loop<false, Units>(how, RankedLane{rows, lane}, repeated, drawn, lanes, lane);
    }
}
