// The loops of TreeSet::draw_ranked, once for each instruction set: a part of row_law_tree_loops.h, behind which it is included.
// No #pragma once.

constexpr int kSearches = 8;  // draws of all lanes that are searched for together

// The words that draws of all lanes lie in.
struct FoundWords {
    alignas(64) LaneWords number[kSearches];  // within the row
    alignas(64) LaneWords bits[kSearches];
    alignas(64) LaneWords ranks[kSearches];
};

// As many lanes as a register holds.
using SomeLanes = Register<uint32_t>::Vector;
constexpr int kSomeLanes = Register<uint32_t>::kCount;

SPSAMPLE_LOOP SomeLanes some_of(const uint32_t* lanes) {
    SomeLanes some;
    __builtin_memcpy(&some, lanes, sizeof some);
    return some;
}

SPSAMPLE_LOOP void put(uint32_t* lanes, SomeLanes some) { __builtin_memcpy(lanes, &some, sizeof some); }

// One lane's row.
struct RankedLane {
    const uint32_t* bits;
    const uint32_t* ranks;
    uint32_t head, last, base, outside, more;

    SPSAMPLE_LOOP_MEMBER RankedLane(const RankedLanes& rows, int lane)
        : bits(rows.entries.bits + rows.word[lane]), ranks(rows.entries.ranks + rows.word[lane]), head(rows.head[lane]),
          last(rows.last[lane]), base(rows.base[lane]), outside(rows.outside[lane]), more(rows.more[lane]) {}

    // The numerators of its entries before a word that is not the first.
    SPSAMPLE_LOOP_MEMBER uint32_t before(uint32_t word) const { return outside * (word * 32 - head) + more * (ranks[word] - base); }

    // A block of them, from a word on, which counts as 0; behind the last word what no unit is above.
    SPSAMPLE_LOOP_MEMBER void fill(uint32_t first, uint32_t* block) const {
        alignas(64) static constexpr uint32_t numbers[kTreeLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        for (int i = 0; i < kTreeLanes; i += kSomeLanes) {
            const SomeLanes zero = {}, none = ~zero, number = some_of(numbers + i), word = number + first;
            const SomeLanes sum = (word * 32 - head) * outside + (some_of(ranks + first + i) - base) * more;
            const SomeLanes from_first = word <= last + zero ? sum : none;
            put(block + i, number == zero ? zero : from_first);
        }
    }

    // From this word on a unit lies in one of kTreeLanes words.
    SPSAMPLE_LOOP_MEMBER uint32_t first_word(uint32_t unit) const {
        uint32_t first = 0;
        for (uint32_t count = last + 1; count > kTreeLanes;) {
            const uint32_t half = count / 2;
            first += half & -uint32_t(before(first + half) < unit);  // no branch: it would be taken as often as not
            count -= half;
        }
        return first;
    }
};

// The words of `count` units of one lane: the last one each before which the numerators add up to less.
SPSAMPLE_LOOP void find_words(const RankedLanes& rows, int lane, const LaneWords* units, int count, FoundWords& found) {
    const RankedLane row(rows, lane);
    alignas(64) uint32_t block[kTreeLanes];
    uint32_t first = 0;
    row.fill(0, block);
    for (int i = 0; i < count; ++i) {
        if (row.last >= kTreeLanes) {
            first = row.first_word(units[i][lane]);
            row.fill(first, block);
        }
        const uint32_t number = first + kernel::count_below(block, kernel::bound(&units[i][lane])) - 1;
        found.number[i][lane] = number;
        found.bits[i][lane] = row.bits[number];
        found.ranks[i][lane] = row.ranks[number];
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

// First position of some lanes' rows at which the numerators up to it are not below the unit. i: which of the units.
SPSAMPLE_LOOP SomeLanes find_within(const RankedLanes& rows, const LaneWords* units, const FoundWords& found, int i, int lane) {
    const SomeLanes zero = {}, head = some_of(rows.head + lane), number = some_of(found.number[i] + lane);
    const SomeLanes start = number == zero ? zero : number * 32 - head;
    const SomeLanes word = some_of(found.bits[i] + lane) >> (number == zero ? head : zero);
    const SomeLanes twos = word - (word >> 1 & 0x55555555);  // how many bits each 2, 4, 8 of the word have
    const SomeLanes fours = (twos & 0x33333333) + (twos >> 2 & 0x33333333);
    const SomeLanes eights = (fours + (fours >> 4)) & 0x0F0F0F0F;
    const SomeLanes inside = number == zero ? zero : some_of(found.ranks[i] + lane) - some_of(rows.base + lane);
    const SomeLanes outside = some_of(rows.outside + lane), more = some_of(rows.more + lane);
    const SomeLanes unit = some_of(units[i] + lane) - outside * start - more * inside;
    WordSearch search{outside, more, unit, some_of(rows.degree + lane) - start};
    search.pass(16, (eights + (eights >> 8)) & 0xFF);
    search.pass(8, eights >> search.position & 0xFF);
    search.pass(4, fours >> search.position & 0xF);
    search.pass(2, twos >> search.position & 3);
    search.pass(1, word >> search.position & 1);
    return start + search.position;
}

// The positions of draws first .. end - 1 of a set of lanes; of others anything.
SPSAMPLE_LOOP void find_draws(const RankedLanes& rows, const LaneUnits& drawn, int first, int end, uint32_t set, TreeLanes& lanes) {
    FoundWords found;
    for (; first < end; first += kSearches) {
        const LaneWords* const units = drawn.units + first;
        const int count = std::min(kSearches, end - first);
        for (uint32_t rest = set; rest != 0; rest &= rest - 1) find_words(rows, __builtin_ctz(rest), units, count, found);
        for (int i = 0; i < count; ++i) {
            for (int lane = 0; lane < kTreeLanes; lane += kSomeLanes) {
                put(lanes.positions[first + i] + lane, find_within(rows, units, found, i, lane));
            }
        }
    }
}

// How many distinct positions lanes lack.
struct Lacking {
    int of_lane[kTreeLanes] = {};

    // Adds a number to the lanes of a set.
    SPSAMPLE_LOOP_MEMBER void add(uint32_t set, int number) {
        for (int lane = 0; lane < kTreeLanes; ++lane) of_lane[lane] += (set >> lane & 1) != 0 ? number : 0;
    }
    // Those that lack some.
    SPSAMPLE_LOOP_MEMBER uint32_t set() const {
        uint32_t lacking = 0;
        for (int lane = 0; lane < kTreeLanes; ++lane) lacking |= uint32_t(of_lane[lane] > 0) << lane;
        return lacking;
    }
};

// Keeps the first of equal positions of a lane, up to `size`.
SPSAMPLE_LOOP void keep_distinct(const TreeDraw& how, const uint32_t* repeated, int made, TreeLanes& lanes, int lane) {
    uint32_t* const positions = &lanes.positions[0][lane];
    int count = 0;
    for (int draw = 0; draw < made && count < how.size; ++draw) {
        positions[count * kTreeLanes] = positions[draw * kTreeLanes];
        count += repeated[draw] >> lane & 1 ? 0 : 1;
    }
    lanes.found[lane] = count;
    lanes.next[lane] = made;
}

// All lanes make `size` draws; those that have repeats go on block by block, up to 4 size draws or kMostTreeDraws.
template <class Units>
SPSAMPLE_LOOP void draw_ranked_loop(const TreeDraw& how, const RankedLanes& rows, TreeLanes& lanes) {
    const uint32_t all = (1u << lanes.count) - 1;
    LaneUnits drawn;
    first_units<false, Units>(how, lanes, drawn);
    find_draws(rows, drawn, 0, how.size, all, lanes);
    for (int lane = 0; lane < lanes.count; ++lane) lanes.found[lane] = lanes.next[lane] = how.size;
    if (how.replace) return;
    uint32_t repeated[kMostTreeDraws];
    const uint32_t with_repeats = kernel::repeats(lanes.positions, 0, how.size, repeated) & all;
    Lacking lacking;
    for (int draw = 1; draw < how.size; ++draw) lacking.add(repeated[draw], 1);
    const int most = std::min(kRoundDraws * how.size, kMostTreeDraws);
    int made = how.size;
    for (uint32_t set = with_repeats; set != 0 && made < most; set &= lacking.set()) {
        const int first = made;
        made = std::min(made / 4 * 4 + 4, most);
        if (drawn.draws < made) more_units<false, Units>(how, lanes, 1, drawn);
        accept_units<false>(how, lanes, first, made, set, drawn);
        find_draws(rows, drawn, first, made, set, lanes);
        kernel::repeats(lanes.positions, first, made, repeated);
        for (int draw = first; draw < made; ++draw) lacking.add(~repeated[draw], -1);
    }
    for (uint32_t rest = with_repeats; rest != 0; rest &= rest - 1) keep_distinct(how, repeated, made, lanes, __builtin_ctz(rest));
}
