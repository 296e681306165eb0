// Draws rows whose numerators have two values (row_law_ranks.h), a group of lanes at a time, in the place of simd.h's uniform draws.
#pragma once

#include <algorithm>

#include "bindings.h"
#include "row_law_ranks.h"
#include "row_law_tree.h"
#include "scratch.h"
#include "spsample/row_law.h"

namespace spsample {

// Positions drawn from one row, of any number of entries and size, more than `size` of them or with replacement; the law as it is
// written. `out` has those that draws before `next` found.
inline void draw_ranked_row(
    const RankedRow& row, int64_t size, bool replace, DrawStream draws, DrawScratch& scratch, int64_t* out, int64_t found = 0,
    int64_t next = 0) {
    if (replace) return its_repeated(row, size, draws, out, next);
    Chosen chosen = scratch.chosen(size, out);
    for (int64_t j = 0; j < found; ++j) chosen.add(out[j]);
    TakenOut taken = scratch.taken_out(size);
    require_draws(its_distinct(row, size, draws, chosen, taken, next));
}

static_assert(kLanes == kTreeLanes && kMostVectorDraws == kMostTreeDraws);

class RankedDrawer {
public:
    RankedDrawer(const RankedRows& rows, const LaneDraw& how)
        : rows_(rows), how_{how.key, how.keys, how.hop, how.size, how.replace}, draw_ranked_(tree_set().draw_ranked) {
        ranked_.entries = rows.entries();
    }

    // Into lanes.positions, for the first `count` lanes. begin(lane): where its row begins in A.
    template <class Begin>
    void draw(Lanes& lanes, int count, Begin&& begin) {
        for (int lane = 0; lane < kLanes; ++lane) load(lanes, lane, lane < count ? begin(lane) : begin(0));
        drawn_.count = count;
        draw_ranked_(how_, ranked_, drawn_);
        for (int j = 0; j < how_.size; ++j) std::copy_n(drawn_.positions[j], kLanes, lanes.positions[j]);
        for (int lane = 0; lane < count; ++lane) {
            if (ready_[lane].kind == RowKind::kPlain) drawn_.found[lane] = drawn_.next[lane] = 0;
            if (drawn_.found[lane] < how_.size) draw_on(lanes, lane);
        }
    }

private:
    void load(const Lanes& lanes, int lane, int64_t begin) {
        const int64_t degree = lanes.degree[lane];
        const EntryRanks& entries = rows_.entries();
        const uint32_t base = rank_of(entries, begin), inside = rank_of(entries, begin + degree) - base;
        const RankedRule& rule = rows_.rule(degree, inside);
        const uint64_t total = rule.inside * inside + rule.outside * (static_cast<uint64_t>(degree) - inside);
        const bool is_plain = rule.wide || total >= kNarrowLimit;
        ReadyRow& ready = ready_[lane];
        ready.vertex = static_cast<int64_t>(wide_word(lanes.vertex_low[lane], lanes.vertex_high[lane]));
        ready.begin = begin;
        ready.kind = is_plain ? RowKind::kPlain : RowKind::kNarrow;
        ready.total = is_plain ? 1 : total;
        ready.rejected_below = is_plain ? 0 : static_cast<uint32_t>(kNarrowLimit - total) % static_cast<uint32_t>(total);
        ranked_.word[lane] = begin / kWordEntries;
        ranked_.head[lane] = static_cast<uint32_t>(begin % kWordEntries);
        ranked_.last[lane] = static_cast<uint32_t>((begin + degree - 1) / kWordEntries - begin / kWordEntries);
        ranked_.base[lane] = base;
        ranked_.degree[lane] = static_cast<uint32_t>(degree);
        ranked_.outside[lane] = static_cast<uint32_t>(rule.outside);
        ranked_.more[lane] = static_cast<uint32_t>(rule.inside - rule.outside);
        drawn_.row[lane] = &ready;
        drawn_.batch_id[lane] = lanes.batch_id[lane];
    }

    // A row that lanes have no room for, or whose draws in lanes were used up.
    void draw_on(Lanes& lanes, int lane) {
        const ReadyRow& ready = ready_[lane];
        const RankedRow row = rows_.row(ready.begin, lanes.degree[lane]);
        int64_t out[kMostTreeDraws];
        for (int j = 0; j < drawn_.found[lane]; ++j) out[j] = drawn_.positions[j][lane];
        const DrawStream draws(how_.key, static_cast<uint64_t>(ready.vertex), how_.hop, lanes.batch_id[lane], row.total());
        draw_ranked_row(row, how_.size, how_.replace, draws, scratch_, out, drawn_.found[lane], drawn_.next[lane]);
        for (int j = 0; j < how_.size; ++j) lanes.positions[j][lane] = static_cast<uint32_t>(out[j]);
    }

    const RankedRows& rows_;
    const TreeDraw how_;
    void (*const draw_ranked_)(const TreeDraw&, const RankedLanes&, TreeLanes&);
    RankedLanes ranked_;
    TreeLanes drawn_;
    ReadyRow ready_[kLanes];
    DrawScratch scratch_;
};

}  // namespace spsample
