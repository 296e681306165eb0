// Draws from ready rows and puts the entries in their place in the result.
#pragma once

#include <algorithm>
#include <vector>

#include "row_law_ready.h"
#include "scratch.h"
#include "row_law_runs.h"

namespace spsample {

// Where the entries of runs go. Rows of a run are drawn in its order.
template <class Index>
class RunOutputs {
public:
    RunOutputs(const std::vector<Run<Index>>& runs, const SelectorView<Index>& Q, const RowsResult<Index>& result)
        : runs_(runs), Q_(Q), result_(result), outputs_(runs.size()), rows_(runs.size()) {}

    // From now on, the next row of run i is number begin(i) of its rows. O(runs).
    template <class Begin>
    void start(Begin&& begin) {
        for (size_t i = 0; i < runs_.size(); ++i) {
            const Run<Index>& run = runs_[i];
            rows_[i] = run.rows ? run.rows + begin(i) : nullptr;
            const int64_t row = run.rows ? *rows_[i] : run.first + begin(i);
            outputs_[i] = {result_.offset(row, run.batch), static_cast<uint32_t>(Q_.batch_ids[run.batch]), run.rows != nullptr};
        }
    }

    int64_t batch_id(uint32_t run) const { return Q_.batch_ids[runs_[run].batch]; }
    uint32_t batch_id_low(uint32_t run) const { return outputs_[run].batch_id; }

    // The place of a run's next row, of `number` entries.
    int64_t take(uint32_t run, int64_t number) {
        Output& output = outputs_[run];
        const int64_t place = output.place;
        output.place = output.by_row ? place_after(run) : place + number;
        return place;
    }

private:
    struct Output {
        int64_t place;      // of the next row
        uint32_t batch_id;  // low bits
        bool by_row;        // whether stacked rows of the run do not follow each other
    };

    // The place of the row after the next, which is looked up. There is one more row behind the last.
    int64_t place_after(uint32_t run) {
        const int64_t* rows = ++rows_[run];
        const int64_t batch = runs_[run].batch;
        SPSAMPLE_PREFETCH(rows + kRowsAhead);
        if (rows + 1 < runs_[run].rows + runs_[run].count) SPSAMPLE_PREFETCH(result_.indptr.data() + rows[1] + batch);
        return result_.offset(*rows, batch);
    }

    static constexpr int64_t kRowsAhead = 8;

    const std::vector<Run<Index>>& runs_;
    const SelectorView<Index>& Q_;
    const RowsResult<Index>& result_;
    std::vector<Output> outputs_;
    std::vector<const int64_t*> rows_;  // the next stacked row of runs whose rows do not follow each other
};

inline TreeDraw tree_draw(const DrawArguments& draw) {
    const int64_t size = std::min<int64_t>(draw.size, kMostTreeDraws);
    return {draw.key, RoundKeys(draw.key), draw.hop, static_cast<int>(size), draw.replace};
}

// Draws are made 16 at a time, for 16 pairs of a row and a run; most often they share the row. Their entries are copied
// when the next 16 have been drawn; where they may be far from the processor, they are asked for before.
template <class Index, class Real>
class TreeDrawer {
public:
    TreeDrawer(const WeightedCall<Index, Real>& call, ReadyRows<Index, Real>& ready, WeightedResult<Index, Real>& result)
        : call_(call), ready_(ready), result_(result), how_(tree_draw(call.draw)), in_lanes_(call.draw.size <= kMostTreeDraws) {}

    // Draws from a row for runs[0 .. count - 1]. The row must stay until flush().
    void draw(const ReadyRow& row, const uint32_t* runs, int64_t count, RunOutputs<Index>& outputs) {
        if (row.kind == RowKind::kNarrow && in_lanes_) return draw_in_lanes(narrow_, row, runs, count, outputs);
        if (row.kind == RowKind::kWide && in_lanes_) return draw_in_lanes(wide_, row, runs, count, outputs);
        for (int64_t i = 0; i < count; ++i) draw_alone(row, runs[i], outputs);
    }

    // Makes all draws that wait and copies their entries.
    void flush() {
        for (Kind* kind : {&narrow_, &wide_}) {
            if (kind->filling().lanes.count > 0) finish(*kind);
            emit_group(kind->drawn());
        }
    }

private:
    struct Group {
        TreeLanes lanes;
        int64_t out[kTreeLanes];
        bool far = false;
    };

    // The pairs of one kind of row: those that wait to be drawn, and those whose entries wait to be copied.
    struct Kind {
        Group groups[2];
        int turn = 0;

        Group& filling() { return groups[turn]; }
        Group& drawn() { return groups[turn ^ 1]; }
    };

    void draw_in_lanes(Kind& kind, const ReadyRow& row, const uint32_t* runs, int64_t count, RunOutputs<Index>& outputs) {
        for (int64_t i = 0; i < count;) {
            Group& group = kind.filling();
            const int first = group.lanes.count;
            const int number = static_cast<int>(std::min<int64_t>(count - i, kTreeLanes - first));
            for (int lane = first; lane < first + number; ++lane, ++i) {
                const int64_t out = group.out[lane] = outputs.take(runs[i], row.number);
                prefetch_output(out + row.number - 1);
                group.lanes.batch_id[lane] = outputs.batch_id_low(runs[i]);
                group.lanes.row[lane] = &row;
            }
            group.lanes.count = first + number;
            group.far |= !row.near;
            if (group.lanes.count == kTreeLanes) finish(kind);
        }
    }

    // Draws the pairs that wait, and copies the entries of those before them.
    void finish(Kind& kind) {
        Group& group = kind.filling();
        const bool wide = group.lanes.row[0]->kind == RowKind::kWide;
        (wide ? tree_set_.draw_wide : tree_set_.draw_narrow)(how_, ready_.trees(), group.lanes);
        for (int lane = 0; lane < group.lanes.count; ++lane) {
            if (group.lanes.found[lane] < how_.size) go_on(group.lanes, lane);
            if (group.far) prefetch(group.lanes, lane);
        }
        emit_group(kind.drawn());
        kind.turn ^= 1;
    }

    // Asks for the memory that a row's entries are written to.
    void prefetch_output(int64_t out) {
        SPSAMPLE_PREFETCH_WRITE(result_.rows.columns.data() + out);
        if (result_.with_weights) SPSAMPLE_PREFETCH_WRITE(result_.weights.data() + out);
    }

    void prefetch(const TreeLanes& lanes, int lane) const {
        const Index* indices = call_.A.indices + lanes.row[lane]->begin;
        for (int j = 0; j < how_.size; ++j) SPSAMPLE_PREFETCH(indices + lanes.positions[j][lane]);
    }

    void emit_group(Group& group) {
        switch (how_.size) {
            case 5: emit_lanes<5>(group); break;
            case 10: emit_lanes<10>(group); break;
            case 15: emit_lanes<15>(group); break;
            default: emit_lanes<0>(group); break;
        }
        group.lanes.count = 0;
        group.far = false;
    }

    // Size: the fanout where it is known to the compiler, else 0.
    template <int Size>
    void emit_lanes(Group& group) {
        if (result_.rows.with_positions) emit_positions(group);
        const Index* const indices = call_.A.indices;
        Index* const columns = result_.rows.columns.data();
        if (result_.with_weights) {
            const Real* const data = call_.data;
            Real* const weights = result_.weights.data();
            copy<Size>(group, [=](int64_t out, int64_t entry) {
                columns[out] = indices[entry];
                weights[out] = data[entry];
            });
        } else {
            copy<Size>(group, [=](int64_t out, int64_t entry) { columns[out] = indices[entry]; });
        }
    }

    void emit_positions(const Group& group) {
        int64_t* const positions = result_.rows.positions.data();
        copy<0>(group, [=](int64_t out, int64_t entry) { positions[out] = entry; });
    }

    // Calls put(place, entry) for all entries of a group.
    template <int Size, class Put>
    void copy(const Group& group, Put&& put) const {
        const int size = Size > 0 ? Size : how_.size, count = group.lanes.count;
        for (int lane = 0; lane < count; ++lane) {
            const uint32_t* const positions = &group.lanes.positions[0][lane];
            const int64_t begin = group.lanes.row[lane]->begin, out = group.out[lane];
#pragma GCC unroll 16
            for (int j = 0; j < size; ++j) put(out + j, begin + positions[j * kTreeLanes]);
        }
    }

    // Draws the rest of a lane, one by one.
    void go_on(TreeLanes& lanes, int lane) {
        const ReadyRow& row = *lanes.row[lane];
        int64_t* out = grown(out_, how_.size);
        for (int j = 0; j < lanes.found[lane]; ++j) out[j] = lanes.positions[j][lane];
        DrawStream draws(how_.key, static_cast<uint64_t>(row.vertex), how_.hop, lanes.batch_id[lane], row.total);
        draw_from(ready_.tree_row(row), draws, out, lanes.found[lane], lanes.next[lane]);
        for (int j = 0; j < how_.size; ++j) lanes.positions[j][lane] = static_cast<uint32_t>(out[j]);
    }

    // A row that is taken whole, or drawn by itself.
    void draw_alone(const ReadyRow& row, uint32_t run, RunOutputs<Index>& outputs) {
        const int64_t place = outputs.take(run, row.number);
        if (row.kind == RowKind::kEmpty) return;
        if (row.kind == RowKind::kTaken) return emit<1>(call_, row.begin, ready_.trees() + row.tree, row.number, place, result_);
        int64_t* out = grown(out_, call_.draw.size);
        if (row.kind == RowKind::kPlain) {
            const PrefixRow sums = prefix_row(row);
            DrawStream draws(how_.key, static_cast<uint64_t>(row.vertex), how_.hop, outputs.batch_id(run), sums.total());
            draw_from(sums, draws, out, 0, 0);
        } else {
            DrawStream draws(how_.key, static_cast<uint64_t>(row.vertex), how_.hop, outputs.batch_id(run), row.total);
            draw_from(ready_.tree_row(row), draws, out, 0, 0);
        }
        emit<1>(call_, row.begin, out, row.number, place, result_);
    }

    // The row law from draw `next` on, `found` positions being in `out` already.
    template <class Row>
    void draw_from(const Row& row, DrawStream& draws, int64_t* out, int64_t found, int64_t next) {
        const int64_t size = call_.draw.size;
        if (call_.draw.replace) return its_repeated(row, size, draws, out, next);
        Chosen chosen = scratch_.chosen(size, out);
        for (int64_t j = 0; j < found; ++j) chosen.add(out[j]);
        TakenOut taken = scratch_.taken_out(size);
        require_draws(its_distinct(row, size, draws, chosen, taken, next));
    }

    PrefixRow prefix_row(const ReadyRow& row) {
        uint64_t* inclusive = scratch_.prefix(row.degree);
        uint64_t sum = 0;
        for (int64_t e = 0; e < row.degree; ++e) inclusive[e] = sum += quantize(call_.weight(row.begin + e), row.shift, 1);
        return {inclusive, row.degree};
    }

    const WeightedCall<Index, Real>& call_;
    ReadyRows<Index, Real>& ready_;
    WeightedResult<Index, Real>& result_;
    const TreeDraw how_;
    const bool in_lanes_;
    const TreeSet& tree_set_ = spsample::tree_set();
    Kind narrow_, wide_;
    DrawScratch scratch_;
    std::vector<int64_t> out_;
};

}  // namespace spsample
