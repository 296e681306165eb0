// Draws rows of A uniformly, 16 at a time (simd.h), straight into their places in the result.
#pragma once

#include <algorithm>

#include "row_law_pieces.h"
#include "row_law_fill.h"
#include "simd.h"
#include "spsample/row_law.h"

namespace spsample {

constexpr int64_t kPointersAhead = 32;  // rows: how far ahead row pointers are asked for

// Where the entries of A are that rows are drawn from.
enum class Distance {
    kNear,  // in the second-level cache: loaded as soon as they are drawn
    kFar,   // anywhere: asked for when they are drawn, loaded a few groups of rows later
};

// Draws rows of one A and Q into one result, by one thread. Rows wait until 16 of them, of any pieces, can be drawn together.
template <class Index>
class Drawer {
public:
    Drawer(
        const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, Distance distance, RowsResult<Index>& result)
        : A_(A), Q_(Q), result_(result), how_{draw.key, RoundKeys(draw.key), draw.hop, static_cast<int>(draw.size), draw.replace},
          draw_lanes_(instruction_set().draw_lanes), depth_(distance == Distance::kNear ? 0 : kMostDepth) {}

    // The rows [begin, end) of a piece, whose entries go to `offset` in the batch and whose output ends where the piece's does; they
    // may be written as late as in flush(). Rows of a piece must come in their order. Returns the offset behind the last row.
    int64_t draw(const Piece& piece, int64_t begin, int64_t end, int64_t offset) {
        while (begin < end) {
            Group& group = groups_[drawn_ % kGroups];
            const int64_t rows = std::min<int64_t>(kLanes - group.rows, end - begin);
            offset = load(piece, begin, rows, offset, group);
            begin += rows;
            if (group.rows == kLanes) draw_group();
        }
        return offset;
    }

    // Draws and writes all rows that wait.
    void flush() {
        Group& group = groups_[drawn_ % kGroups];
        if (group.rows > 0) {
            for (int lane = group.rows; lane < kLanes; ++lane) {
                group.lanes.vertex_low[lane] = group.lanes.vertex_high[lane] = 0;
                group.lanes.batch_id[lane] = group.lanes.degree[lane] = 0;
            }
            draw_group();
        }
        while (written_ < drawn_) write_group();
    }

private:
    static constexpr int kMostDepth = 3;  // groups between the draw, which asks for their entries, and the load
    static constexpr int kGroups = kMostDepth + 1;

    struct Group {
        Lanes lanes;
        int64_t begin[kLanes];   // of each row in A
        int64_t out[kLanes];     // where its entries go in the result
        int32_t number[kLanes];  // of entries drawn
        int rows = 0;
        bool roomy = true;  // whether `size` entries of each lane may be read at its begin, and written to its output
    };

    // Puts rows first .. first + rows - 1, of a piece, behind the group's. Returns the offset behind the last one's entries.
    int64_t load(const Piece& piece, int64_t first, int64_t rows, int64_t offset, Group& group) {
        const Index* vertices = Q_.vertices + first;
        const int64_t ahead = std::min(rows, piece.end - first - kPointersAhead);
        for (int64_t r = 0; r < ahead; ++r) SPSAMPLE_PREFETCH(A_.indptr + vertices[r + kPointersAhead]);
        const int64_t base = result_.entry_ptr[piece.batch];
        const uint32_t batch_id = static_cast<uint32_t>(Q_.batch_ids[piece.batch]);
        int64_t* pointers = result_.indptr.data() + first + piece.batch + 1;
        int64_t last_begin = 0, last_offset = offset;
        int lane = group.rows;
        for (int64_t r = 0; r < rows; ++r, ++lane) {
            const uint64_t vertex = static_cast<uint64_t>(vertices[r]);
            const int64_t begin = A_.indptr[vertex];
            const int64_t degree = A_.indptr[vertex + 1] - begin;
            group.lanes.vertex_low[lane] = static_cast<uint32_t>(vertex);
            group.lanes.vertex_high[lane] = static_cast<uint32_t>(vertex >> 32);
            group.lanes.batch_id[lane] = batch_id;
            group.lanes.degree[lane] = static_cast<uint32_t>(degree);
            group.begin[lane] = begin;
            group.out[lane] = base + offset;
            last_begin = std::max(last_begin, begin);
            last_offset = offset;
            const int64_t number = drawn_count(degree, how_.size, how_.replace);
            group.number[lane] = static_cast<int32_t>(number);
            pointers[r] = offset += number;
        }
        if (A_.ids) key_by_ids(vertices, rows, ahead, group.rows, group.lanes);
        group.rows = lane;
        group.roomy &= last_begin + how_.size <= A_.num_entries && last_offset + how_.size <= piece.offset + piece.count;
        return offset;
    }

    // Where rows are not their own vertices: the vertices that key rows[0 .. count - 1], from lane `first` on. Asks for those of rows
    // `ahead`, too.
    void key_by_ids(const Index* rows, int64_t count, int64_t ahead, int first, Lanes& lanes) const {
        for (int64_t r = 0; r < ahead; ++r) SPSAMPLE_PREFETCH(A_.ids + rows[r + kPointersAhead]);
        for (int64_t r = 0; r < count; ++r) {
            const uint64_t vertex = static_cast<uint64_t>(A_.vertex(rows[r]));
            lanes.vertex_low[first + r] = static_cast<uint32_t>(vertex);
            lanes.vertex_high[first + r] = static_cast<uint32_t>(vertex >> 32);
        }
    }

    void draw_group() {
        Group& group = groups_[drawn_++ % kGroups];
        draw_lanes_(how_, group.lanes);
        if (depth_ > 0) prefetch(group);
        if (drawn_ - written_ > depth_) write_group();
    }

    void prefetch(const Group& group) const {
        for (int lane = 0; lane < group.rows; ++lane) {
            const Index* row = A_.indices + group.begin[lane];
            for (int j = 0; j < group.number[lane]; ++j) SPSAMPLE_PREFETCH(row + group.lanes.positions[j][lane]);
        }
    }

    void write_group() {
        Group& group = groups_[written_++ % kGroups];
        if (result_.with_positions) {
            write_as<true>(group);
        } else {
            write_as<false>(group);
        }
        group.rows = 0;
        group.roomy = true;
    }

    template <bool WithPositions>
    void write_as(const Group& group) const {
        // Where there is room for it, `size` entries are written for each row: what is too much, the piece's next row writes over.
        if (!group.roomy) return write_rows<WithPositions, false, 0>(group);
        switch (how_.size) {
            case 5: return write_rows<WithPositions, true, 5>(group);
            case 10: return write_rows<WithPositions, true, 10>(group);
            case 15: return write_rows<WithPositions, true, 15>(group);
            default: return write_rows<WithPositions, true, 0>(group);
        }
    }

    // Size: the fanout where it is known to the compiler, else 0.
    template <bool WithPositions, bool Roomy, int Size>
    void write_rows(const Group& group) const {
        const int size = Size > 0 ? Size : how_.size;
        for (int lane = 0; lane < group.rows; ++lane) {
            const Index* row = A_.indices + group.begin[lane];
            const uint32_t* positions = &group.lanes.positions[0][lane];
            Index* columns = result_.columns.data() + group.out[lane];
            const int number = Roomy ? size : group.number[lane];
            for (int j = 0; j < number; ++j) columns[j] = row[positions[j * kLanes]];
            if (WithPositions) {
                int64_t* where = result_.positions.data() + group.out[lane];
                for (int j = 0; j < number; ++j) where[j] = group.begin[lane] + positions[j * kLanes];
            }
        }
    }

    const CsrView<Index>& A_;
    const SelectorView<Index>& Q_;
    RowsResult<Index>& result_;
    const LaneDraw how_;
    void (*const draw_lanes_)(const LaneDraw&, Lanes&);
    const int64_t depth_;
    Group groups_[kGroups];
    int64_t drawn_ = 0;    // groups; the next one is being filled
    int64_t written_ = 0;  // groups
};

}  // namespace spsample
