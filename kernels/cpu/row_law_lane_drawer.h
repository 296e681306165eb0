// Draws rows of A uniformly (simd.h), or by numerators of two values (row_law_ranked_drawer.h), 16 at a time, straight into their places
// in the result.
#pragma once

#include <algorithm>
#include <optional>

#include "row_law_pieces.h"
#include "row_law_fill.h"
#include "row_law_ranked_drawer.h"
#include "row_law_uniform.h"
#include "simd.h"
#include "spsample/row_law.h"

namespace spsample {

constexpr int64_t kPointersAhead = 32;  // rows: how far ahead row pointers are asked for

// Where the entries of A are that rows are drawn from.
enum class Distance {
    kNear,  // in the second-level cache: loaded as soon as they are drawn
    kFar,   // anywhere: asked for when they are drawn, loaded a few groups of rows later
};

// Draws rows of one A and Q into one result, by one thread. Rows wait until 16 of them, of any pieces, can be drawn together. Rows that
// are taken whole need no draws and wait apart.
template <class Index, Distance distance>
class Drawer {
public:
    // asks: whether row pointers are asked for a few rows ahead.
    Drawer(const RowsCall<Index>& call, bool asks, RowsResult<Index>& result)
        : A_(call.A), Q_(call.Q), result_(result), asks_(asks),
          how_(call.draw.key, call.draw.hop, static_cast<int>(call.draw.size), call.draw.replace),
          draw_lanes_(instruction_set().draw_lanes) {
        if (call.ranked) ranked_.emplace(*call.ranked, how_);
    }

    // The rows [begin, end) of a piece, whose entries go to `offset` in the batch and whose output ends where the piece's does; they
    // may be written as late as in flush(). Rows of a piece must come in their order. Returns the offset behind the last row.
    int64_t draw(const Piece& piece, int64_t begin, int64_t end, int64_t offset) {
        while (begin < end) {
            Group& group = filling();
            const int64_t rows = std::min<int64_t>(kLanes - group.rows, end - begin);
            const int whole = group.whole;
            offset = load(piece, begin, rows, offset, group);
            if (!kNear) ask_for_whole(group, whole);
            begin += rows;
            if (group.rows == kLanes || group.whole > kMostWhole - kLanes) draw_group();
        }
        return offset;
    }

    bool asks_for_pointers() const { return asks_; }

    // Draws and writes all rows that wait.
    void flush() {
        if (filling().rows + filling().whole > 0) draw_group();
        while (written_ < drawn_) write_group(filling());
    }

private:
    static constexpr bool kNear = distance == Distance::kNear;
    static constexpr int kDepth = kNear ? 0 : 3;  // groups between the draw, which asks for their entries, and the load
    static constexpr int kGroups = kDepth + 1;
    static constexpr int kMostWhole = 64;

    // Rows to be drawn, and those among them that are taken whole.
    struct Group {
        Lanes lanes;
        const Index* from[kLanes + kMostWhole];  // each row in A: first those of the lanes, then those taken whole
        Index* to[kLanes + kMostWhole];          // its place in the result
        int32_t number[kMostWhole];              // of entries of each row taken whole
        int rows = 0;                            // lanes that hold a row
        int whole = 0;                           // rows taken whole
        bool roomy = true;                       // whether `size` entries may be written to the place of each row taken whole

        Group() { std::fill_n(lanes.vertex_high, kLanes, 0); }
    };

    Group& filling() { return groups_[drawn_ % kGroups]; }

    // Up to this many entries a row is taken whole. Others give `size`.
    int64_t most_whole() const { return how_.replace ? 0 : how_.size; }

    // Puts rows first .. first + rows - 1, of a piece, into lanes of the group or to those taken whole, without a branch. There is room
    // for them. Returns the offset behind the last one's entries.
    int64_t load(const Piece& piece, int64_t first, int64_t rows, int64_t offset, Group& group) const {
        const Index* const vertices = Q_.vertices + first;
        const int64_t most = most_whole(), size = how_.size, last = piece.end - first - 1;
        int64_t* const pointers = result_.indptr.data() + first + piece.batch + 1;
        Index* const to = result_.columns.data() + result_.begin(piece.batch);
        const int64_t* const where = result_.with_positions ? positions_of(to) : nullptr;
        int64_t lane = group.rows, whole = group.whole;
        std::fill(group.lanes.batch_id + lane, group.lanes.batch_id + kLanes, static_cast<uint32_t>(Q_.batch_ids[piece.batch]));
        for (int64_t r = 0; r < rows; ++r) {
            if (asks_) SPSAMPLE_PREFETCH(A_.indptr + vertices[std::min(r + kPointersAhead, last)]);
            const uint64_t row = static_cast<uint64_t>(vertices[r]);
            const int64_t begin = A_.indptr[row], degree = A_.indptr[row + 1] - begin;
            const int64_t mask = -static_cast<int64_t>(degree <= most);  // all ones where the row is taken whole
            const int64_t place = lane + ((kLanes + whole - lane) & mask);
            group.lanes.vertex_low[lane] = static_cast<uint32_t>(row);
            if (sizeof(Index) > 4) group.lanes.vertex_high[lane] = static_cast<uint32_t>(row >> 32);
            group.lanes.degree[lane] = static_cast<uint32_t>(degree);
            group.number[whole] = static_cast<int32_t>(degree);
            group.from[place] = A_.indices + begin;
            group.to[place] = to + offset;
            SPSAMPLE_PREFETCH(to + offset + size - 1);  // where the row's last entries are written once the group is drawn
            if (where) SPSAMPLE_PREFETCH(where + offset + size - 1);
            lane += 1 + mask;
            whole -= mask;
            offset += size + ((degree - size) & mask);
            pointers[r] = offset;
        }
        if (A_.ids) {
            for (int64_t r = 0; r < rows; ++r) SPSAMPLE_PREFETCH(A_.ids + vertices[std::min(r + kPointersAhead, last)]);
            key_by_ids(group.lanes, group.rows, static_cast<int>(lane));
        }
        group.rows = static_cast<int>(lane);
        group.whole = static_cast<int>(whole);
        group.roomy &= offset + size <= piece.offset + piece.count;
        return offset;
    }

    // Where rows are not their own vertices: the vertices that key the lanes first .. end - 1.
    void key_by_ids(Lanes& lanes, int first, int end) const {
        for (int lane = first; lane < end; ++lane) {
            const uint64_t row = wide_word(lanes.vertex_low[lane], lanes.vertex_high[lane]);
            const uint64_t vertex = static_cast<uint64_t>(A_.vertex(static_cast<int64_t>(row)));
            lanes.vertex_low[lane] = static_cast<uint32_t>(vertex);
            lanes.vertex_high[lane] = static_cast<uint32_t>(vertex >> 32);
        }
    }

    void draw_group() {
        Group& group = filling();
        if (group.rows > 0) {
            fill_up(group);
            draw_lanes(group);
        }
        ++drawn_;
        if (drawn_ - written_ > kDepth) {
            write_group(group);
        } else if (!kNear) {
            for (int lane = 0; lane < group.rows; ++lane) ask_for_lane(group, lane);
        }
    }

    void draw_lanes(Group& group) {
        if (!ranked_) return draw_lanes_(how_, group.lanes);
        ranked_->draw(group.lanes, group.rows, [&](int lane) { return group.from[lane] - A_.indices; });
    }

    // Lanes without a row are drawn, too: of some row.
    void fill_up(Group& group) const {
        for (int lane = group.rows; lane < kLanes; ++lane) {
            group.lanes.vertex_low[lane] = group.lanes.vertex_high[lane] = group.lanes.batch_id[lane] = 0;
            group.lanes.degree[lane] = static_cast<uint32_t>(most_whole() + 1);
        }
    }

    // Asks for the entries of the group's rows taken whole, from the `first` on.
    void ask_for_whole(const Group& group, int first) const {
        constexpr int kPerLine = static_cast<int>(kCacheLine / sizeof(Index));
        for (int w = first; w < group.whole; ++w) {
            const Index* row = group.from[kLanes + w];
            for (int j = 0; j < group.number[w]; j += kPerLine) SPSAMPLE_PREFETCH(row + j);
            if (group.number[w] > 1) SPSAMPLE_PREFETCH(row + group.number[w] - 1);
        }
    }

    void ask_for_lane(const Group& group, int lane) const {
        const Index* row = group.from[lane];
        for (int j = 0; j < how_.size; ++j) SPSAMPLE_PREFETCH(row + group.lanes.positions[j][lane]);
    }

    // Writes the oldest group, and asks for the entries of the newest one step by step with it: most prefetches of a burst are dropped.
    void write_group(const Group& newest) {
        Group& group = groups_[written_++ % kGroups];
        result_.with_positions ? write_as<true>(group, newest) : write_as<false>(group, newest);
        group.rows = group.whole = 0;
        group.roomy = true;
    }

    template <bool WithPositions>
    void write_as(const Group& group, const Group& newest) const {
        if (group.whole > 0) write_whole<WithPositions>(group);
        switch (how_.size) {
            case 5: return write_rows<WithPositions, 5>(group, newest);
            case 10: return write_rows<WithPositions, 10>(group, newest);
            case 15: return write_rows<WithPositions, 15>(group, newest);
            default: return write_rows<WithPositions, 0>(group, newest);
        }
    }

    // Size: the fanout where it is known to the compiler, else 0.
    template <bool WithPositions, int Size>
    void write_rows(const Group& group, const Group& newest) const {
        const int size = Size > 0 ? Size : how_.size;
        for (int lane = 0; lane < group.rows; ++lane) {
            if (!kNear && lane < newest.rows) ask_for_lane(newest, lane);
            const Index* row = group.from[lane];
            const uint32_t* positions = &group.lanes.positions[0][lane];
            Index* columns = group.to[lane];
            for (int j = 0; j < size; ++j) columns[j] = row[positions[j * kLanes]];
            if (WithPositions) {
                int64_t* where = positions_of(columns);
                for (int j = 0; j < size; ++j) where[j] = (row - A_.indices) + positions[j * kLanes];
            }
        }
        for (int lane = group.rows; !kNear && lane < newest.rows; ++lane) ask_for_lane(newest, lane);
    }

    // Where there is room for it, `size` entries are written for each row: what is too much, the piece's next rows write over, which
    // are not written yet.
    template <bool WithPositions>
    void write_whole(const Group& group) const {
        for (int w = 0; w < group.whole; ++w) {
            const Index* row = group.from[kLanes + w];
            const bool is_roomy = group.roomy && (row - A_.indices) + how_.size <= A_.num_entries;
            const int64_t number = is_roomy ? most_whole() : group.number[w];
            Index* columns = group.to[kLanes + w];
            for (int64_t j = 0; j < number; ++j) columns[j] = row[j];
            if (!WithPositions) continue;
            int64_t* where = positions_of(columns);
            for (int64_t j = 0; j < number; ++j) where[j] = (row - A_.indices) + j;
        }
    }

    int64_t* positions_of(const Index* columns) const { return result_.positions.data() + (columns - result_.columns.data()); }

    const CsrView<Index>& A_;
    const SelectorView<Index>& Q_;
    RowsResult<Index>& result_;
    const bool asks_;
    const LaneDraw how_;
    void (*const draw_lanes_)(const LaneDraw&, Lanes&);
    std::optional<RankedDrawer> ranked_;
    Group groups_[kGroups];
    int64_t drawn_ = 0;    // groups; the next one is being filled
    int64_t written_ = 0;  // groups
};

}  // namespace spsample
