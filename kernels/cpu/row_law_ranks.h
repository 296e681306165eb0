// Rows of A D (row_law_scale.h) where every entry of A is 1: their numerators have two values, those of entries in the set and of others.
// So a prefix sum follows from how many of the entries before a position are in the set, which a bit for each entry of A and the
// ranks of these bits tell: a draw is a search, and takes no pass over the row.
#pragma once

#include <cstdint>

#include "simd.h"
#include "spsample/quantisation.h"

namespace spsample {

constexpr int64_t kWordEntries = 32;

// A bit for each entry of A, whether it is in the set, 32 a word; and for each word how many of the entries before it are, mod 2^32.
struct EntryRanks {
    const uint32_t* bits;
    const uint32_t* ranks;

    // Words of each: searches read up to 15 ranks behind the last.
    static int64_t num_words(int64_t num_entries) { return num_entries / kWordEntries + 16; }
};

// Not every processor that this is compiled for has an instruction for it.
inline uint32_t count_bits(uint32_t bits) {
    const uint32_t twos = bits - (bits >> 1 & 0x55555555);
    const uint32_t fours = (twos & 0x33333333) + (twos >> 2 & 0x33333333);
    return ((fours + (fours >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24;
}

// How many of the entries before entry e of A are in the set, mod 2^32.
inline uint32_t rank_of(const EntryRanks& entries, int64_t e) {
    const int64_t word = e / kWordEntries;
    return entries.ranks[word] + count_bits(entries.bits[word] & ((1u << (e % kWordEntries)) - 1));
}

// Numerators of the entries of a row, in the set and others. Of rows without an entry of a kind, that one means nothing.
struct RankedRule {
    uint64_t inside;
    uint64_t outside;
    bool wide;
};

// One row, as its.h has it. O(log entries) for each search.
struct RankedRow {
    EntryRanks entries;
    int64_t begin;
    int64_t degree;
    RankedRule rule;

    uint64_t before(int64_t position) const {
        const uint64_t inside = rank_of(entries, begin + position) - rank_of(entries, begin);
        return rule.inside * inside + rule.outside * (static_cast<uint64_t>(position) - inside);
    }
    uint64_t total() const { return before(degree); }
    uint64_t numerator(int64_t position) const { return before(position + 1) - before(position); }

    int64_t position_of(uint64_t x) const {
        int64_t first = 0;
        for (int64_t count = degree; count > 0;) {
            const int64_t half = count / 2;
            const bool is_before = before(first + half + 1) <= x;
            first = is_before ? first + half + 1 : first;
            count = is_before ? count - half - 1 : half;
        }
        return first;
    }
};

// The rows of A.
class RankedRows {
public:
    // scaled: what an entry in the set weighs, above 0.
    RankedRows(const EntryRanks& entries, float scaled) : entries_(entries) {
        for (int log2 = 0; log2 < kMostLog2; ++log2) {
            rules_[kNone][log2] = rule(1.0f, 1.0f, log2);
            rules_[kSome][log2] = rule(scaled, 1.0f, log2);
            rules_[kAll][log2] = rule(scaled, scaled, log2);
        }
    }

    const EntryRanks& entries() const { return entries_; }

    // Of the row rule (docs/law.md, section 2), which only the weights that a row has and the number of its entries decide.
    const RankedRule& rule(int64_t degree, uint32_t inside) const {
        const int kind = (inside > 0 ? 1 : 0) + (inside == degree ? 1 : 0);  // no branches: rows are of all kinds
        return rules_[kind][degree > 1 ? 32 - __builtin_clz(static_cast<uint32_t>(degree - 1)) : 0];
    }

    RankedRow row(int64_t begin, int64_t degree) const {
        return {entries_, begin, degree, rule(degree, rank_of(entries_, begin + degree) - rank_of(entries_, begin))};
    }

private:
    enum Kind { kNone, kSome, kAll };
    static constexpr int kMostLog2 = 32;  // ranks are mod 2^32: of rows of fewer than 2^31 entries

    static RankedRule rule(float inside, float outside, int log2) {
        const float weights[] = {inside, outside};
        ExponentRange range = exponent_range(weights, 2);
        range.positive = int64_t(1) << log2;
        const int64_t shift = row_shift(weights, 2, range);
        return {quantize(inside, shift, 1), quantize(outside, shift, 1), is_wide(range, shift)};
    }

    EntryRanks entries_;
    RankedRule rules_[3][kMostLog2];
};

// What kLanes rows are searched by; numbers are mod 2^32, as totals are below it.
struct RankedLanes {
    EntryRanks entries;
    int64_t word[kLanes];                   // the one that the row begins in
    alignas(64) uint32_t head[kLanes];      // entries of that word before the row
    alignas(64) uint32_t last[kLanes];      // the number of the row's last word, from 0
    alignas(64) uint32_t base[kLanes];      // rank of the row's first entry
    alignas(64) uint32_t degree[kLanes];
    alignas(64) uint32_t outside[kLanes];   // numerator of an entry outside of the set
    alignas(64) uint32_t more[kLanes];      // by which that of one in the set is larger
};

}  // namespace spsample
