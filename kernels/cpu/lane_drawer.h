// Draws rows of A uniformly, 16 at a time (simd.h), straight into their places in the result.
#pragma once

#include <algorithm>

#include "pieces.h"
#include "row_fill.h"
#include "simd.h"
#include "spsample/row_law.h"

namespace spsample {

constexpr int64_t kPointersAhead = 32;  // rows: how far ahead row pointers are asked for
constexpr int kDepth = 3;               // groups of 16 rows between the draw, which asks for their entries, and the load

// Draws 16 rows at a time from one A and Q into one result.
template <class Index>
class Drawer {
public:
    Drawer(const CsrView<Index>& A, const SelectorView<Index>& Q, const DrawArguments& draw, RowsResult<Index>& result)
        : A_(A), Q_(Q), result_(result), how_{draw.key, RoundKeys(draw.key), draw.hop, 0, static_cast<int>(draw.size), draw.replace},
          draw_lanes_(instruction_set().draw_lanes) {}

    // The rows [begin, end) of a piece, whose entries go to `offset` in the batch and whose output ends where the piece's does.
    // Prefetch: whether the entries may be far away. Returns the offset behind the last row.
    template <bool Prefetch>
    int64_t draw(const Piece& piece, int64_t begin, int64_t end, int64_t offset) {
        constexpr int depth = Prefetch ? kDepth : 0;
        how_.batch_id = Q_.batch_ids[piece.batch];
        const int64_t num_groups = (end - begin + kLanes - 1) / kLanes;
        for (int64_t g = 0; g < num_groups + depth; ++g) {
            if (g < num_groups) {
                Group& group = groups_[g % (depth + 1)];
                load(piece, begin + g * kLanes, std::min<int64_t>(kLanes, end - begin - g * kLanes), group);
                draw_lanes_(how_, group.lanes);
                if (Prefetch) prefetch(group);
            }
            if (g >= depth) offset = emit(piece, groups_[(g - depth) % (depth + 1)], offset);
        }
        return offset;
    }

private:
    struct Group {
        Lanes lanes;
        int64_t begin[kLanes];  // of each row in A
        int32_t number[kLanes];  // of entries drawn
        int64_t first;           // stacked row
        int rows;
        bool inside;  // begin + size is not past A's end in any lane
    };

    // Row pointers of `rows` rows from stacked row `first` on.
    void load(const Piece& piece, int64_t first, int64_t rows, Group& group) const {
        const Index* vertices = Q_.vertices + first;
        const int64_t ahead = std::min(rows, piece.end - first - kPointersAhead);
        for (int64_t lane = 0; lane < ahead; ++lane) SPSAMPLE_PREFETCH(A_.indptr + vertices[lane + kPointersAhead]);
        int64_t last = 0;
        for (int64_t lane = 0; lane < rows; ++lane) {
            const uint64_t vertex = static_cast<uint64_t>(vertices[lane]);
            const int64_t begin = A_.indptr[vertex];
            const int64_t degree = A_.indptr[vertex + 1] - begin;
            group.lanes.vertex_low[lane] = static_cast<uint32_t>(vertex);
            group.lanes.vertex_high[lane] = static_cast<uint32_t>(vertex >> 32);
            group.lanes.degree[lane] = static_cast<uint32_t>(degree);
            group.begin[lane] = begin;
            group.number[lane] = static_cast<int32_t>(drawn_count(degree, how_.size, how_.replace));
            last = std::max(last, begin);
        }
        for (int64_t lane = rows; lane < kLanes; ++lane) {
            group.lanes.vertex_low[lane] = group.lanes.vertex_high[lane] = group.lanes.degree[lane] = 0;
        }
        group.first = first;
        group.rows = static_cast<int>(rows);
        group.inside = last + how_.size <= A_.num_entries;
    }

    void prefetch(const Group& group) const {
        for (int lane = 0; lane < group.rows; ++lane) {
            const Index* row = A_.indices + group.begin[lane];
            for (int j = 0; j < group.number[lane]; ++j) SPSAMPLE_PREFETCH(row + group.lanes.positions[j][lane]);
        }
    }

    int64_t emit(const Piece& piece, const Group& group, int64_t offset) const {
        return result_.with_positions ? emit_as<true>(piece, group, offset) : emit_as<false>(piece, group, offset);
    }

    template <bool WithPositions>
    int64_t emit_as(const Piece& piece, const Group& group, int64_t offset) const {
        // Where there is room for it, `size` entries are written for each row: what is too much, the next row writes over.
        const bool roomy = group.inside && piece.offset + piece.count - offset >= int64_t(kLanes) * how_.size;
        if (!roomy) return emit_rows<WithPositions, false, 0>(piece, group, offset);
        switch (how_.size) {
            case 5: return emit_rows<WithPositions, true, 5>(piece, group, offset);
            case 10: return emit_rows<WithPositions, true, 10>(piece, group, offset);
            case 15: return emit_rows<WithPositions, true, 15>(piece, group, offset);
            default: return emit_rows<WithPositions, true, 0>(piece, group, offset);
        }
    }

    // Size: the fanout where it is known to the compiler, else 0.
    template <bool WithPositions, bool Roomy, int Size>
    int64_t emit_rows(const Piece& piece, const Group& group, int64_t offset) const {
        const int64_t base = result_.entry_ptr[piece.batch];
        int64_t* pointers = result_.indptr.data() + group.first + piece.batch + 1;
        const int size = Size > 0 ? Size : how_.size;
        for (int lane = 0; lane < group.rows; ++lane) {
            const Index* row = A_.indices + group.begin[lane];
            const uint32_t* positions = &group.lanes.positions[0][lane];
            Index* columns = result_.columns.data() + base + offset;
            const int number = Roomy ? size : group.number[lane];
            for (int j = 0; j < number; ++j) columns[j] = row[positions[j * kLanes]];
            if (WithPositions) {
                int64_t* where = result_.positions.data() + base + offset;
                for (int j = 0; j < number; ++j) where[j] = group.begin[lane] + positions[j * kLanes];
            }
            offset += group.number[lane];
            pointers[lane] = offset;
        }
        return offset;
    }

    const CsrView<Index>& A_;
    const SelectorView<Index>& Q_;
    RowsResult<Index>& result_;
    LaneDraw how_;
    void (*draw_lanes_)(const LaneDraw&, Lanes&);
    Group groups_[kDepth + 1];
};

}  // namespace spsample
